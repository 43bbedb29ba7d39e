/** Packed vocabularies: `npm run pack` writes them, and bundlers hand them on as bytes. */
declare module "*.bin" {
  const file: ArrayBuffer;
  export default file;
}

/** The package has no types: its default export is the path of the binary that it installed. */
declare module "workerd" {
  const path: string;
  export default path;
}

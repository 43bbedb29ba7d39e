/** The package has no types. It is CommonJS, and its `default` is the path of the binary it installed. */
declare module "workerd" {
  const workerd: { readonly default: string };
  export default workerd;
}

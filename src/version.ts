/** The version of the package, as `package.json` has it: what a file of ours was written by. */
export const VERSION = '0.2.0';

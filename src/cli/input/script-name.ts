/** Whether a model is a program to trace, by its name. */
export function isScript(path: string): boolean {
  return /\.m?[jt]s$/.test(path);
}

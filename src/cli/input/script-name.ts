/** Tells by its name whether a model is a program to trace. */
export function isScript(path: string): boolean {
  return /\.m?[jt]s$/.test(path);
}

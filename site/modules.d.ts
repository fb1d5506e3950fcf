/** Modules that the build makes (`vite.config.ts`). */
declare module 'virtual:report-script' {
  /** Brings the report that stands in the document to life. */
  export default function run(): void;
}
declare module 'virtual:report-style' {
  const style: string;
  export default style;
}
declare module 'virtual:types' {
  const texts: Readonly<Record<string, string>>;
  export default texts;
}
declare module 'virtual:demo' {
  const base64: string;
  export default base64;
}
declare module 'virtual:famous-runs' {
  /** Rows of `test/fixtures/runs`, as CSV. */
  const csv: string;
  export default csv;
}

/** Imports a model and loads the code of its format only then. */

import { contentOf, type ForeignFormat, importContent, isForeign } from './content.ts';
import type { ForeignReader, Imported, ImportOptions } from './types.ts';

/** Most files are FX text, and half of the code here reads something else. */
const LOADERS: Readonly<Record<ForeignFormat, () => Promise<ForeignReader>>> = {
  onnx: async () => (await import('./onnx/foreign.ts')).onnxReader,
  pt2: async () => (await import('./pt2/foreign.ts')).archiveReader,
  'pt2-json': async () => (await import('./pt2/foreign.ts')).programJsonReader,
  stablehlo: async () => (await import('./mlir/foreign.ts')).stablehloReader,
  jaxpr: async () => (await import('./jaxpr/foreign.ts')).jaxprReader,
};

/** `importModel` that loads the code of a format when a file has it. @throws as `importGraph` */
export async function importOnDemand(
  input: Uint8Array | string,
  options: ImportOptions = {},
): Promise<Imported> {
  const { content, format } = contentOf(input, options);
  return importContent(
    content,
    format,
    options,
    isForeign(format) ? await LOADERS[format]() : undefined,
  );
}

/** The readers of `.pt2` archives and of exported-program JSON, as the importer looks them up. */

import { complete } from '../complete/complete.ts';
import type { ForeignReader } from '../types.ts';
import { importArchive, importExportedProgram } from './import.ts';

export const archiveReader: ForeignReader = {
  kind: 'binary',
  read: (bytes, options) => ({ graph: complete(importArchive(bytes, options)) }),
};

export const programJsonReader: ForeignReader = {
  kind: 'text',
  read: (text, options) => ({ graph: complete(importExportedProgram(text, options)) }),
};

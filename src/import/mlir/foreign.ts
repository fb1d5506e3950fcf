/** The StableHLO reader, as the importer looks it up by format. */

import { counted } from '../complete/counted.ts';
import type { ForeignReader } from '../types.ts';
import { readStablehlo } from './import.ts';

export const stablehloReader: ForeignReader = {
  kind: 'text',
  read: (text, options) => counted(readStablehlo(text, options)),
};

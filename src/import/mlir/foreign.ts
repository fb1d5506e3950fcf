import { counted } from '../counted.ts';
import type { ForeignReader } from '../content.ts';
import { readStablehlo } from './import.ts';

export const stablehloReader: ForeignReader = {
  kind: 'text',
  read: (text, options) => counted(readStablehlo(text, options)),
};

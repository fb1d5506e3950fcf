/** The jaxpr reader, as the importer looks it up by format. */

import { counted } from '../complete/counted.ts';
import type { ForeignReader } from '../types.ts';
import { readJaxpr } from './import.ts';

export const jaxprReader: ForeignReader = {
  kind: 'text',
  read: (text, options) => counted(readJaxpr(text, options)),
};

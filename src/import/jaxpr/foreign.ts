import { counted } from '../counted.ts';
import type { ForeignReader } from '../content.ts';
import { readJaxpr } from './import.ts';

export const jaxprReader: ForeignReader = {
  kind: 'text',
  read: (text, options) => counted(readJaxpr(text, options)),
};

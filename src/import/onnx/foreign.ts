import { complete } from '../complete.ts';
import type { ForeignReader } from '../content.ts';
import { importOnnx } from './import.ts';

export const onnxReader: ForeignReader = {
  kind: 'binary',
  read: (bytes, options) => {
    const { graph, counts } = importOnnx(bytes, options);
    return { graph: complete(graph), counts };
  },
};

/** The ONNX reader, as the importer looks it up by format. */

import { complete } from '../complete/complete.ts';
import type { ForeignReader } from '../types.ts';
import { importOnnx } from './import.ts';

export const onnxReader: ForeignReader = {
  kind: 'binary',
  read: (bytes, options) => {
    const { graph, counts } = importOnnx(bytes, options);
    return { graph: complete(graph), counts };
  },
};

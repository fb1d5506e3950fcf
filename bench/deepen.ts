/** Writes the 32-layer Llama graph with its middle layer repeated to 126 layers. Run: npx tsx bench/deepen.ts FILE.swg */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { loadModel } from '../src/cli/input/load.ts';
import { printGraph } from '../src/graph/text/write.ts';
import { repeatLayer } from './repeat.ts';

const source = fileURLToPath(
  new URL('../test/fixtures/torch/llama3-8b-32l-b16/joint.expanded.txt.gz', import.meta.url),
);
const { graph } = await loadModel(source, { role: [], tie: [] });
writeFileSync(process.argv[2], printGraph(repeatLayer(graph, 94)));

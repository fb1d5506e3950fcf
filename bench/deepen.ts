/**
 * Writes a graph of Llama layers with its middle layer repeated. Run: npx tsx bench/deepen.ts GRAPH
 * COPIES FILE.swg
 */
import { writeFileSync } from 'node:fs';

import { loadModel } from '../src/cli/input/load.ts';
import { printGraph } from '../src/graph/text/write.ts';
import { repeatLayer } from './repeat.ts';

const [source, copies, file] = process.argv.slice(2);
const { graph } = await loadModel(source, { role: [], tie: [] });
writeFileSync(file, printGraph(repeatLayer(graph, Number(copies))));

/**
 * Copies the torch texts that the tests need from a fixture collection into test/fixtures/torch,
 * packed with gzip -9, and writes one reduced answer key per graph. Usage: node
 * scripts/copy-fixtures.mjs FOLDER (the one that has INDEX.json).
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';

const JOINT = [
  'mlp',
  'mlp-loss',
  'llama-tiny',
  'llama3-8b-2l',
  'llama3-8b-32l',
  'llama3-8b-2l-b16',
  'llama3-8b-4l-b64',
  'llama3-8b-32l-b16',
  'gpt2-2l',
  'gpt2-12l',
  'bert-base',
  'convnet',
  'hop-cond-joint',
  'hop-scan-joint',
  'hop-map-joint',
];
/** Further graphs: [record id, kinds of text]. */
const OTHERS = [
  ['mlp/forward', ['readable']],
  ['mlp/backward', ['readable']],
  ['mlp/export', ['readable', 'ep']],
  ['mlp-dynamic/export', ['readable', 'ep']],
  ['convnet/forward', ['readable']],
  ['convnet/backward', ['readable']],
  ['convnet/export_core', ['readable', 'ep']],
  ['llama-tiny/forward', ['readable']],
  ['llama-tiny/backward', ['readable']],
  ['llama-tiny/export', ['readable', 'ep']],
  ['gpt2-2l/export', ['readable', 'ep']],
  ['hop-while/export', ['readable']],
  ['hop-cond/export', ['readable', 'ep']],
];

const source = process.argv[2];
if (source === undefined) throw new Error('name the folder that has INDEX.json');
const target = join(import.meta.dirname, '..', 'test', 'fixtures', 'torch');

/**
 * @type {{ records: { id: string, files: { path: string }[], graph: unknown, params: unknown,
 *   graph_flops: unknown, num_fwd_outputs?: number }[] }}
 */
const index = JSON.parse(readFileSync(join(source, 'INDEX.json'), 'utf8'));

/** @param {string} path */
function read(path) {
  const bytes = readFileSync(join(source, path));
  return path.endsWith('.gz') ? gunzipSync(bytes) : bytes;
}

/** @param {string} path @param {Uint8Array} bytes */
function write(path, bytes) {
  const file = join(target, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, gzipSync(bytes, { level: 9 }));
  return file;
}

/** @param {string} id @param {readonly string[]} kinds */
function copy(id, kinds) {
  const record = index.records.find((r) => r.id === id);
  if (record === undefined) throw new Error(`INDEX.json has no record ${id}`);
  /** @param {string} kind */
  const find = (kind) => record.files.find((f) => f.path.includes(`.${kind}.`))?.path;
  for (const kind of kinds) {
    const path = find(kind);
    if (path === undefined) throw new Error(`${id} has no ${kind} text`);
    write(`${id}.${kind}.txt.gz`, read(path));
  }
  const shapes = find('shapes');
  if (shapes === undefined) throw new Error(`${id} has no answer key`);
  const { graph, params, graph_flops: flops, num_fwd_outputs: forwardOutputs } = record;
  const key = {
    id,
    graph,
    params,
    flops,
    forwardOutputs,
    shapes: JSON.parse(read(shapes).toString('utf8')),
  };
  write(`${id}.key.json.gz`, Buffer.from(JSON.stringify(key)));
}

for (const model of JOINT) copy(`${model}/joint`, ['readable', 'expanded']);
for (const [id, kinds] of OTHERS) copy(/** @type {string} */ (id), /** @type {string[]} */ (kinds));

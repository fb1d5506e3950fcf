/**
 * Copies the JAX texts that the tests need into test/fixtures/jax, packed with gzip -9, with the
 * answers of the index in index.json.gz. Usage: node scripts/copy-jax-fixtures.mjs FOLDER (the one
 * that has INDEX.json).
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';

const source = process.argv[2];
if (source === undefined) throw new Error('name the folder that has INDEX.json');
const target = join(import.meta.dirname, '..', 'test', 'fixtures', 'jax');

/** @type {{ records: Record<string, unknown>[] }} */
const index = JSON.parse(readFileSync(join(source, 'INDEX.json'), 'utf8'));
const answers = [];
for (const record of index.records) {
  const files = /** @type {{ path: string }[]} */ (record.files).filter(
    ({ path }) => path.startsWith('jax/') && /(\.mlir|jaxpr\.txt)(\.gz)?$/.test(path),
  );
  for (const { path } of files) {
    const bytes = readFileSync(join(source, path));
    const text = path.endsWith('.gz') ? gunzipSync(bytes) : bytes;
    const name = `${path.replace(/^jax\//, '').replace(/\.gz$/, '')}.gz`;
    mkdirSync(dirname(join(target, name)), { recursive: true });
    writeFileSync(join(target, name), gzipSync(text, { level: 9 }));
    const {
      id,
      graph,
      dot_flops,
      dot_flops_with_scan_trips,
      in_shardings,
      out_shardings,
      mesh,
      note,
    } = record;
    const { by_op, eqns_top } = /** @type {{ by_op: unknown, eqns_top?: number }} */ (graph);
    answers.push({
      id,
      file: name,
      by_op,
      eqns_top,
      dot_flops,
      trips_flops: dot_flops_with_scan_trips,
      in_shardings,
      out_shardings,
      mesh,
      note,
    });
  }
}
writeFileSync(join(target, 'index.json.gz'), gzipSync(JSON.stringify(answers), { level: 9 }));

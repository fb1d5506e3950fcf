/**
 * Published layouts against our pick: for each public model, device count and batch that a source states, the layout is priced as
 * published and our pick and all other fitting plans under the same model of cost. `npx tsx bench/published.ts` writes
 * bench/published.md; with numbers behind it, only those layouts, counted from 1. Layouts: test/fixtures/published-layouts.json, with their sources. What was priced is kept in
 * bench/published.json; delete it to price all again.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { builtinOperators } from '../src/ops/builtin.ts';
import { modelEntry } from '../src/models/registry.ts';
import { compareModel } from '../src/zoo/sweep/compare-model.ts';
import {
  publishedCluster,
  publishedRank,
  type PublishedLayout,
  type PublishedRank,
} from '../src/zoo/sweep/published.ts';

const path = new URL('../test/fixtures/published-layouts.json', import.meta.url);
const { sources, layouts } = JSON.parse(readFileSync(path, 'utf8')) as {
  readonly sources: string;
  readonly layouts: readonly PublishedLayout[];
};
interface Row {
  readonly layout: PublishedLayout;
  readonly rank: PublishedRank;
  readonly best: { readonly plan: string; readonly mesh: string; readonly seconds: number } | null;
}

const kept = new URL('published.json', import.meta.url);
const rows: Row[] = existsSync(kept) ? (JSON.parse(readFileSync(kept, 'utf8')) as Row[]) : [];

const asked = process.argv.slice(2).map(Number);
for (const [i, layout] of layouts.entries()) {
  if (asked.length > 0 && !asked.includes(i + 1)) continue;
  if (rows.some((row) => JSON.stringify(row.layout) === JSON.stringify(layout))) continue;
  const { model, devices, sequence, globalBatch } = layout;
  const cluster = publishedCluster(layout);
  const config = JSON.stringify(modelEntry(model).config);
  const comparison = await compareModel(
    { model, config, devices, cluster, sequence, globalBatch, cost: 'alpha-beta' },
    { table: builtinOperators() },
  );
  const best = comparison.plans.find((p) => p.name === comparison.best);
  const pick = best === undefined ? null : { plan: best.plan, mesh: best.mesh, seconds: best.seconds };
  rows.push({ layout, rank: publishedRank(comparison, layout), best: pick });
  writeFileSync(kept, `${JSON.stringify(rows, null, 1)}\n`);
  write();
}
write();

function write(): void {
  const priced = rows.filter((r) => r.rank.rank !== undefined);
  const ahead = priced.filter((r) => r.best !== null && r.best.seconds <= (r.rank.seconds ?? 0)).length;
  const near = priced.filter((r) => (r.rank.share ?? 1) <= 0.1).length;
  const lines = rows.map(({ layout, rank, best }) => {
    const seconds = rank.seconds === undefined ? '-' : `${rank.seconds.toPrecision(4)} s`;
    const place = rank.rank === undefined ? rank.says : `${rank.rank} of ${rank.of} (${((rank.share ?? 0) * 100).toFixed(1)} %)${rank.says === '' ? '' : `: ${rank.says}`}`;
    return `| ${layout.model} | ${layout.devices} x ${layout.cluster}${layout.device === undefined ? '' : `, ${layout.device.memoryBytes / 1e9} GB`} | ${layout.globalBatch} x ${layout.sequence} | ${layout.text} | ${seconds} | ${best === null ? '-' : `${best.plan} on ${best.mesh}`} | ${best === null ? '-' : `${best.seconds.toPrecision(4)} s`} | ${place} |`;
  }); // prettier-ignore
  writeFileSync(
    new URL('published.md', import.meta.url),
    `# Published layouts under our model of cost

${sources}

Each layout is priced with the best of the state sharding, schedule and checkpointing that its source leaves open; everything
in bf16, whatever the source ran in. Devices are those of the node design (80 GB) but for torchtitan's, which had 96 GB. Written by \`npx tsx bench/published.ts\`;
${rows.length} of ${layouts.length} layouts so far.

| model | devices | batch | published layout | its step | our pick | its step | rank among fitting plans |
| --- | --- | --- | --- | --- | --- | --- | --- |
${lines.join('\n')}

Of ${priced.length} layouts that fit, our pick is at most as slow in ${ahead}; ${near} rank in the first tenth of the fitting plans.
`,
  );
}

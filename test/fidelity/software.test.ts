import { describe, expect, it } from 'vitest';

import { publicRuns } from '../../scripts/validation-figures.ts';
import { askedRun } from '../../src/fidelity/asked-run.ts';
import { parseCsv } from '../../src/fidelity/csv.ts';
import { RunPredictor } from '../../src/fidelity/predict-run.ts';
import { type MeasuredRun, parseRuns } from '../../src/fidelity/runs.ts';
import { SOFTWARE_COLUMNS } from '../../src/fidelity/software.ts';
import { modelEntry } from '../../src/models/registry.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';

const csv = publicRuns();
const asStated = parseRuns(csv);
const written = (rows: readonly (readonly string[])[]): string =>
  rows
    .map((row) => row.map((c) => (/[",\n]/.test(c) ? `"${c.replaceAll('"', '""')}"` : c)).join(','))
    .join('\n');
/** All that a prediction is made of, for each plan that the row leaves open. */
const asked = (run: MeasuredRun): unknown =>
  run.recomputeModes.map((recompute) => askedRun(run, { ...run.plan, recompute }, 'nccl'));

describe('software of measured runs', () => {
  const { columns, rows } = parseCsv(csv, []);
  /** A table of one row, with another value in a column that it may not have. */
  const withColumn = ({ cells }: (typeof rows)[number], column: string, value: string): string => {
    const all = [...new Set([...columns, column])];
    return written([all, all.map((c) => (c === column ? value : (cells.get(c) ?? '')))]);
  };

  it('the same question and layout are priced under any name of the source', () => {
    const renamed = written([
      columns,
      ...rows.map(({ cells }) =>
        columns.map((c) => (c === 'source' ? 'a table of ours' : (cells.get(c) ?? ''))),
      ),
    ]);
    const { runs } = parseRuns(renamed);
    expect(runs.map((r) => r.id)).toEqual(asStated.runs.map((r) => r.id));
    expect(runs.map(asked)).toEqual(asStated.runs.map(asked));
    expect(runs.map((r) => r.largerMicrobatches)).toEqual(
      asStated.runs.map((r) => r.largerMicrobatches),
    );
  });

  it('without columns of software the trainer is told by the layout, and the row says so', () => {
    const left = columns.filter((c) => !(SOFTWARE_COLUMNS as readonly string[]).includes(c));
    const bare = parseRuns(
      written([left, ...rows.map(({ cells }) => left.map((c) => cells.get(c) ?? ''))]),
    );
    const same = bare.runs.filter((run, i) => run.framework === asStated.runs[i].framework);
    expect(same.length / bare.runs.length).toBeGreaterThan(0.95);
    for (const run of bare.runs)
      expect(run.assumptions.join()).toContain(`framework not in the table: ${run.framework}`);
    expect(
      asStated.runs.flatMap((r) => r.assumptions).filter((a) => a.includes('framework')),
    ).toEqual([]);
  });

  it('a row that names its model is priced as that model, and refused where it is another', () => {
    const llama = rows.find(({ cells }) => cells.get('id') === 'r0001')!;
    const named = (name: string): ReturnType<typeof parseRuns> =>
      parseRuns(withColumn(llama, 'hf_id', name));
    const id = 'meta-llama/Llama-3.1-8B';
    const [run] = named(id).runs;
    expect(askedRun(run, run.plan, 'nccl')).toMatchObject({
      question: { config: JSON.stringify(modelEntry(id).config) },
    });
    const reasons = ['meta-llama/Llama-3.1-70B', 'nobody/nothing-1B'].map(
      (name) => named(name).skipped[0]?.reason,
    );
    expect(reasons).toEqual([
      expect.stringMatching(
        /'hf_id' .*80, 8192, 64 layers, hidden and heads, the row 32, 4096, 32/,
      ),
      expect.stringContaining('no model of that name is known'),
    ]);
    // A slip in its name is found.
    expect(() => parseRuns(withColumn(llama, 'hf_ids', id))).toThrow("'hf_ids', which is not read");
  });

  it('heads of Qwen3 have 128 dims, which is not hidden / heads', () => {
    const qwen = asStated.runs.find((run) => run.shape.hidden === 2048 && run.shape.layers === 48);
    expect(qwen?.shape).toMatchObject({ heads: 32, headDim: 128 });
  });

  it('launches block on the nodes where jobs hang otherwise, or where the row says so, and then no host time is hidden', async () => {
    const byId = (id: string): (typeof rows)[number] => {
      const row = rows.find(({ cells }) => cells.get('id') === id);
      if (row === undefined) throw new Error(`no run ${id}`);
      return row;
    };
    const [bloom, other] = [byId('r0528'), byId('r2184')];
    const run = (row: typeof bloom, value: string): MeasuredRun =>
      parseRuns(withColumn(row, 'blocking_launches', value)).runs[0];
    const blocks = (found: MeasuredRun): boolean => found.system.blockingLaunches === true;
    expect(
      [bloom, other].map((row) => ['', 'yes', 'no'].map((value) => blocks(run(row, value)))),
    ).toEqual([
      [true, true, false],
      [false, true, false],
    ]);
    const predictor = new RunPredictor(builtinOperators());
    const seconds = async (value: string): Promise<number> => {
      const found = await predictor.predict(run(bloom, value));
      return 'reason' in found ? NaN : found.seconds;
    };
    // 12 layers of each stage for 256 microbatches, three passes; a layer's pass launches some tens
    // of kernels at 38 us each.
    const longer = (await seconds('yes')) - (await seconds('no'));
    expect(longer / (12 * 256 * 3)).toBeGreaterThan(10 * 38e-6);
    expect(longer / (12 * 256 * 3)).toBeLessThan(100 * 38e-6);
  });

  it('a router whose layers have shared experts or dense layers is of no family without latent attention', () => {
    const routed = asStated.runs.find(({ shape }) => shape.experts !== undefined && !shape.latent);
    const experts = routed?.shape.experts;
    if (routed === undefined || experts === undefined) throw new Error('no such run');
    const of = (more: Partial<typeof experts>): unknown =>
      askedRun(
        { ...routed, shape: { ...routed.shape, experts: { ...experts, ...more } } },
        routed.plan,
        'nccl',
      );
    expect(of({ shared: 0, denseLayers: 0 })).toHaveProperty('question');
    for (const more of [{ shared: 1 }, { denseLayers: 1 }])
      expect(of(more)).toEqual({ reason: 'a shape that no family of ours has' });
  });

  it.each([
    ['framework', 'megatron-brigde', /'megatron-brigde'/],
    ['gradient_bytes', '-1', /bytes from 0 to 64/],
    ['blocking_launches', 'maybe', /yes or no/],
  ])('E_CSV with the line: %s holds %s', (column, value, message) => {
    const one = withColumn(rows[0], column, value);
    const error: unknown = expect.objectContaining({
      code: 'E_CSV',
      message: expect.stringMatching(message) as unknown,
      details: expect.objectContaining({ position: { line: 2, column: 1 } }) as unknown,
    });
    const { runs, faults } = parseRuns(one);
    expect([runs.length, faults]).toEqual([0, [error]]);
  });
});

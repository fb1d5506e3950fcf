import { describe, expect, it } from 'vitest';
import { publicRuns } from '../../../scripts/validation-figures.ts';
import { parseCsv } from '../../../src/cost/validation/csv.ts';
import { SOFTWARE_COLUMNS } from '../../../src/cost/validation/software.ts';
import { validateRuns, type Validation } from '../../../src/cost/validation/validate.ts';

const csv = publicRuns();
const asStated = validateRuns(csv);
const seconds = ({ predictions }: Validation): Map<string, number> =>
  new Map(predictions.map((p) => [p.run.id, p.seconds]));
const errors = ({ predictions }: Validation, source = /./): number[] =>
  predictions.flatMap(({ run, seconds: said }) =>
    run.stepSeconds === undefined || run.outOfMemory || !source.test(run.source)
      ? []
      : [Math.abs(said / run.stepSeconds - 1)],
  );
const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;
const written = (rows: readonly (readonly string[])[]): string =>
  rows.map((row) => row.map((c) => (/[",\n]/.test(c) ? `"${c.replaceAll('"', '""')}"` : c)).join(',')).join('\n');

describe('software of measured runs', () => {
  const { columns, rows } = parseCsv(csv, []);

  it('a row says the same of itself under any name of its source', () => {
    const renamed = written([
      columns,
      ...rows.map(({ cells }) => columns.map((c) => (c === 'source' ? 'a table of ours' : (cells.get(c) ?? '')))),
    ]);
    expect(seconds(validateRuns(renamed))).toEqual(seconds(asStated));
  });

  it('without columns of software the trainer is told by the layout, says so, and costs little accuracy', () => {
    const left = columns.filter((c) => !(SOFTWARE_COLUMNS as readonly string[]).includes(c));
    const bare = validateRuns(written([left, ...rows.map(({ cells }) => left.map((c) => cells.get(c) ?? ''))]));
    expect(mean(errors(bare))).toBeLessThan(mean(errors(asStated)) + 0.01);
    expect(mean(errors(bare, /^NeMo 24/))).toBeLessThan(0.1);
    expect(bare.assumptions.map((a) => a.text)).toContainEqual(
      expect.stringContaining('framework not in the table: megatron-core'),
    );
    expect(asStated.assumptions.filter((a) => a.text.includes('framework'))).toEqual([]);
  });

  it('heads of Qwen3 have 128 dims, which is not hidden / heads', () => {
    const qwen = asStated.predictions.find((p) => p.run.shape.hidden === 2048 && p.run.shape.layers === 48);
    expect(qwen?.run.shape).toMatchObject({ heads: 32, headDim: 128 });
  });

  it.each([
    ['framework', 'megatron-brigde', /'megatron-brigde'/],
    ['optimizer_bytes', '-1', /bytes from 0 to 64/],
  ])('E_CSV with the line: %s holds %s', (column, value, message) => {
    const one = written([columns, columns.map((c) => (c === column ? value : (rows[0].cells.get(c) ?? '')))]);
    const error: unknown = expect.objectContaining({
      code: 'E_CSV',
      message: expect.stringMatching(message) as unknown,
      details: expect.objectContaining({ position: { line: 2, column: 1 } }) as unknown,
    });
    expect(() => validateRuns(one)).toThrow(error);
  });
});

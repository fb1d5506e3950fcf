import { beforeAll, describe, expect, it } from 'vitest';

import { comparisonText } from '../../src/cli/commands/written-plan/report-comparison.ts';
import type { ComparedPlan, Comparison } from '../../src/recipes/compare/comparison.ts';
import { comparisonSections } from '../../src/report/sections/compared.ts';
import { compareModel } from '../../src/sweep/compare-model.ts';
import { TABLE } from '../plan/support.ts';

const MANY = 16_000;

describe('the page of a long comparison', () => {
  let small: Comparison;
  let long: Comparison;
  beforeAll(async () => {
    const config = JSON.stringify({
      model_type: 'llama',
      hidden_size: 512,
      intermediate_size: 1536,
      num_attention_heads: 8,
      num_key_value_heads: 8,
      num_hidden_layers: 4,
      vocab_size: 4096,
      torch_dtype: 'bfloat16',
    });
    small = await compareModel(
      {
        model: 'small',
        config,
        devices: 4,
        cluster: 'dgx-h100',
        sequence: 256,
        globalBatch: 16,
        cost: 'nccl',
      },
      { table: TABLE, threads: 1, whatIf: false, plans: ['dp', 'fsdp', 'pp+fsdp'] },
    );
    const [first] = small.plans;
    const plans = Array.from({ length: MANY }, (_, i): ComparedPlan => ({
      ...first,
      name: `fsdp [m${i}]`,
      mesh: `dp_replicate=${i + 1},dp_shard=2`,
      seconds: first.seconds * (1 + (i >> 1) / MANY),
    }));
    const finding = {
      code: 'ZL05',
      severity: 'info',
      message: 'm'.repeat(150),
      values: {},
      nearest: [],
    } as const;
    const findings = plans.map(({ plan, mesh }) => ({ ...finding, plan, mesh }));
    long = {
      ...small,
      plans,
      findings,
      best: plans[0].name,
      pareto: [plans[0].name, plans[MANY - 1].name],
    };
  });

  it('is below 1.5 MB, says what it leaves out, and carries the plans that it shows', () => {
    const page = comparisonText(long, 'html', '0');
    expect(page.length).toBeLessThan(1.5e6);
    expect(page).toContain('1,202 of 16,000 plans that were priced, the fastest and the front');
    const [, json] = /id="shardwright-report">([^]*?)<\/script>/.exec(page) ?? [];
    const { comparison, leftOut } = JSON.parse(json) as { comparison: Comparison; leftOut: string };
    expect(leftOut).toContain(`${(MANY - 1202).toLocaleString('en')} plans`);
    expect(comparison.plans.map((p) => p.name)).toContain(long.plans[MANY - 1].name);
    expect(comparison.plans.filter((p) => p.traffic !== undefined)).toHaveLength(1);
    expect(comparison.findings.map((f) => f.mesh)).toEqual([long.plans[0].mesh]);
    // The other formats have all.
    expect(
      (JSON.parse(comparisonText(long, 'json', '0')) as { comparison: Comparison }).comparison
        .plans,
    ).toHaveLength(MANY);
    expect(comparisonText(long, 'csv', '0').trim().split('\n')).toHaveLength(MANY + 1);
  });

  it('folds plans that no figure tells apart: two of each here', () => {
    const [section] = comparisonSections(long);
    const [table] = section.blocks.flatMap((b) => (b.kind === 'table' ? [b] : []));
    expect(table.rows).toHaveLength(601);
    expect(table.rows[0][1]).toBe(`${long.plans[0].plan}, 1 on other meshes`);
    expect(table.caption).toContain('plans of equal figures are one row');
    const [own] = comparisonSections(small)[0].blocks.flatMap((b) =>
      b.kind === 'table' ? [b] : [],
    );
    const figures = new Set(
      small.plans.map((p) => `${p.seconds} ${p.communicationSeconds} ${p.peakBytes}`),
    );
    expect(own.rows).toHaveLength(figures.size);
  });

  it('has the layout that was asked about, and what of its file is not counted', () => {
    const [best] = small.plans;
    const layout = {
      text: 'dp=4',
      name: 'dp',
      mesh: 'dp=4',
      seconds: 2 * best.seconds,
      tokensPerSecond: 1,
      peakBytes: 1,
      fits: true,
      computeSeconds: 1,
      communicationSeconds: 1,
      bubbleSeconds: 0,
      microbatches: 1,
      edits: [],
      from: {
        file: 'ds.json',
        format: 'DeepSpeed',
        notPriced: [{ key: 'offload', value: 'cpu', why: 'nothing is moved' }],
      },
    };
    const page = comparisonText({ ...small, layout }, 'md', '0');
    expect(page).toContain('Your layout');
    expect(page).toContain('dp=4 (read from ds.json, DeepSpeed)');
    expect(page).toContain('offload cpu: nothing is moved');
    expect(page).toContain('100 %');
  });

  it('says what stopped it, and how far the best may be from the best recipe', () => {
    const seconds = small.plans.find((p) => p.name === small.best)?.seconds ?? NaN;
    const stopped = {
      by: 'time limit' as const,
      notAsked: ['3 programs'],
      boundSeconds: seconds / 2,
    };
    expect(comparisonText({ ...small, stopped }, 'text', '0')).toContain('50.0 % less');
  });
});

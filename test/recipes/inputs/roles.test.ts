import { describe, expect, it } from 'vitest';

import { runCli } from '../../../src/cli/program.ts';
import type { Graph } from '../../../src/graph/types.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { modelFacts } from '../../../src/recipes/inputs/model-facts.ts';
import { graphInputRoles } from '../../../src/recipes/inputs/roles.ts';
import { lintPlan } from '../../../src/recipes/lint.ts';
import { namedRecipe } from '../../../src/recipes/registry.ts';
import { input, parameter } from '../../../src/trace/record/spec.ts';
import { crossEntropy } from '../../../src/trace/tensor/functional.ts';
import type { Tensor } from '../../../src/trace/tensor/tensor.ts';
import { trace } from '../../../src/trace/trace.ts';
import { load, TABLE } from '../../plan/support.ts';

/**
 * Batch and sequence of inputs, told by the program. The truth is what each fixture was exported
 * with: the dims that `scripts/engines` and the model's own code give a meaning.
 */

type Shown = Readonly<
  Record<string, readonly [batch: number | undefined, sequence: number | undefined]>
>;

function shown(graph: Graph, stated?: Parameters<typeof graphInputRoles>[2]): Shown {
  const roles = graphInputRoles(graph, TABLE, stated);
  return Object.fromEntries(
    [...roles].map(([n, { batch, sequence }]) => [graph.nodes[n].name, [batch, sequence]]),
  );
}

const fixture = (name: string): string => `test/fixtures/torch/${name}/joint.expanded.txt.gz`;

async function cli(...argv: string[]): Promise<{ code: number; out: string; err: string }> {
  let out = '';
  let err = '';
  const code = await runCli(argv, {
    stdout: (text) => (out += text),
    stderr: (text) => (err += text),
    isTerminal: false,
  });
  return { code, out, err };
}

describe('batch and sequence dims of inputs', () => {
  const NONE = undefined;
  const ROWS: readonly (readonly [name: string, roles: Shown])[] = [
    // 64 samples of 13 dense features, 26 tables of indices [table, sample], one target each.
    [
      'torch/dlrm/joint.expanded',
      { primals_37: [0, NONE], primals_38: [1, NONE], primals_39: [0, NONE] },
    ],
    // Nodes are mixed along the edges: no dim is a batch.
    [
      'torch/gcn/joint.expanded',
      { primals_3: [NONE, NONE], primals_4: [NONE, NONE], primals_5: [NONE, NONE] },
    ],
    ['torch/mlp-loss/joint.expanded', { primals_5: [0, NONE], primals_6: [0, NONE] }],
    ['torch/convnet/joint.expanded', { primals_12: [0, NONE] }],
    // Batch norm mixes the samples in its statistics only.
    ['torch/resnet18/joint.expanded', { primals_123: [0, NONE], primals_124: [0, NONE] }],
    // Patches are mixed by attention, and are not a dim of the image.
    ['torch/vit-tiny/joint.expanded', { primals_153: [0, NONE], primals_154: [0, NONE] }],
    ['torch/bert-base/joint.expanded', { primals_207: [0, 1], primals_208: [0, 1] }],
    // Labels are shifted against the logits.
    ['torch/gpt2-2l/joint.expanded', { primals_30: [0, 1], primals_31: [0, 1] }],
    ['torch/llama-tiny/joint.expanded', { primals_24: [0, 1], primals_25: [0, 1] }],
    // Tokens meet where they are sorted by expert; the residual stream goes past it.
    ['torch/mixtral-tiny-grouped/joint.expanded', { primals_24: [0, 1], primals_25: [0, 1] }],
    // Attention written out: scores [heads, rows, rows], a batch of 1, the size of no batch.
    ['peers/gpt-1', { primals_17: [NONE, 1] }],
    ['peers/block-256', { primals_7: [0, 1] }],
  ];
  it.each(ROWS)('%s', (name, roles) => {
    expect(shown(load(name))).toEqual(roles);
  });

  it('a batch that is the last dim, and one that two inputs have in different places', () => {
    const graph = jointGraph(
      trace(
        ({ x, bias, w }: Record<'x' | 'bias' | 'w', Tensor>) =>
          w.matmul(x).add(bias.t()).square().mean(),
        { x: input([16, 32]), bias: input([32, 8]), w: parameter([8, 16]) },
      ),
      { seed: 1 },
    );
    expect(shown(graph)).toEqual({ x: [1, undefined], bias: [0, undefined] });
  });

  it('samples that are compared with those of another input: one side is a batch, both are none', () => {
    type Args = Record<'a' | 'b' | 'w' | 'labels', Tensor>;
    const inputs = {
      a: input([16, 8]),
      b: input([16, 8]),
      w: parameter([8, 4]),
      labels: input([16], 'i64'),
    };
    const scores = ({ a, b, w }: Args): Tensor => a.matmul(w).matmul(b.matmul(w).t());
    const oneSided = trace((args: Args) => crossEntropy(scores(args), args.labels), inputs);
    expect(shown(jointGraph(oneSided, { seed: 1 }))).toEqual({
      a: [0, undefined],
      b: [undefined, undefined],
      labels: [0, undefined],
    });
    const clip = trace(
      (args: Args) =>
        crossEntropy(scores(args), args.labels).add(crossEntropy(scores(args).t(), args.labels)),
      inputs,
    );
    expect(Object.values(shown(jointGraph(clip, { seed: 1 }))).flat()).toEqual(
      Array(6).fill(undefined),
    );
  });

  it('what is stated wins, and inputs that share the index follow', () => {
    const gcn = load('torch/gcn/joint.expanded');
    const stated = shown(gcn, { batch: { primals_3: 0 } });
    expect(stated).toEqual({
      primals_3: [0, undefined],
      primals_4: [undefined, undefined],
      primals_5: [0, undefined],
    });
    expect(shown(gcn, { batch: { primals_3: -2 } })).toEqual(stated);
    expect(() => shown(gcn, { batch: { primals: 0 } })).toThrow(
      /--batch-dim primals=0: the graph has no input/,
    );
    expect(() => shown(gcn, { sequence: { primals_5: 1 } })).toThrow(
      /'primals_5' \[48\] has no dim 1/,
    );
  });
});

describe('recipes by the roles of inputs', () => {
  it('features are not a sequence: 13 of them make no finding ZL06', () => {
    const facts = modelFacts(load('torch/dlrm/joint.expanded'));
    expect(facts).toMatchObject({ batch: 64 });
    expect(facts).not.toHaveProperty('sequence');
    for (const name of ['dp+tp+sp', 'dp+cp'])
      expect(lintPlan(namedRecipe(name), [2, 2], facts, 8).map((f) => f.code)).not.toContain(
        'ZL06',
      );
  });

  it('DLRM runs data parallel over its samples, and is offered no Megatron', async () => {
    const { code, out } = await cli(
      'compare',
      fixture('dlrm'),
      '--devices',
      '4',
      '--cluster',
      'dgx-h100',
      '--plans',
      'dp,fsdp,tp',
      '--max-dims',
      '1',
      '--json',
      '--quiet',
    );
    const compared = JSON.parse(out) as {
      plans: { name: string }[];
      refused: { plan: string; reason: string }[];
    };
    expect(code).toBe(0);
    expect(compared.plans.map((p) => p.name.replace(/ .*/, '')).sort()).toEqual(['dp', 'fsdp']);
    expect(compared.refused.map((r) => r.plan)).toEqual(['tp']);
  });

  it('a graph network whose weights are called w1 and w2 is offered neither, and says how', async () => {
    const { out } = await cli(
      'plan',
      '-v',
      fixture('gcn'),
      '--mesh',
      'dp=4',
      '--cluster',
      'dgx-h100',
      '--quiet',
    );
    expect(out).toMatch(
      /data parallel \(dp\) +- +no input has a batch that the program tells: .*--batch-dim NAME=D/,
    );
    expect(out).toMatch(/Megatron \(dp\) +- +no weight has a name that tells its Megatron role/);
    const stated = await cli(
      'plan',
      '-v',
      fixture('gcn'),
      '--mesh',
      'dp=4',
      '--cluster',
      'dgx-h100',
      '--batch-dim',
      'primals_3=0',
      '--quiet',
    );
    expect(stated.out).toMatch(/data parallel \(dp\) +>= [\d.]+ [µm]s/);
    const audited = await cli(
      'audit',
      fixture('gcn'),
      '--plan',
      'recipe:dp',
      '--mesh',
      'dp=4',
      '--cluster',
      'dgx-h100',
      '--batch-dim',
      'primals_3=0',
      '--json',
      '--quiet',
    );
    expect(audited.code).toBe(0);
    expect((JSON.parse(audited.out) as { regret: number }).regret).toBeGreaterThanOrEqual(0);
    const compared = await cli(
      'compare',
      fixture('gcn'),
      '--devices',
      '4',
      '--cluster',
      'dgx-h100',
      '--plans',
      'dp',
      '--max-dims',
      '1',
      '--batch-dim',
      'primals_3=0',
      '--json',
      '--quiet',
    );
    expect((JSON.parse(compared.out) as { plans: unknown[] }).plans).toHaveLength(1);
  });

  it('wrong flags are one line', async () => {
    const plan = (...more: string[]) =>
      cli('plan', '-v', fixture('gcn'), '--mesh', 'dp=4', '--cluster', 'dgx-h100', ...more);
    expect((await plan('--batch-dim', 'x')).err).toContain("--batch-dim 'x' is not NAME=D");
    expect((await plan('--batch-dim', 'x=0')).err).toContain(
      "--batch-dim x=0: the graph has no input 'x'",
    );
    expect(
      (
        await cli(
          'compare',
          'gpt2',
          '--devices',
          '4',
          '--cluster',
          'dgx-h100',
          '--batch-dim',
          'x=0',
        )
      ).err,
    ).toContain('are for graphs');
  });
});

describe('audit of a named plan', () => {
  const audit = (...more: string[]) =>
    cli('audit', fixture('mlp-loss'), '--cluster', 'dgx-h100', ...more);

  it('on a mesh of other dims names the mesh that it needs and the plans that fit', async () => {
    const { code, err } = await audit('--plan', 'recipe:fsdp', '--mesh', 'dp=2,tp=4');
    expect(code).toBe(2);
    expect(err).toContain(
      "--mesh dp=2,tp=4: 'fsdp' has axes dp_shard, the mesh has 2 dims: dp, tp",
    );
    expect(err).toContain(
      'give it a mesh of its axes, --mesh dp_shard=8, or a recipe of this mesh: dp+tp (dp, tp)',
    );
    expect(err).not.toContain('hsdp');
    expect(err).toContain(', fsdp+tp (dp_shard, tp)');
    expect((await audit('--plan', 'recipe:fsdp', '--mesh', 'dp_shard=8', '--quiet')).code).toBe(0);
  });

  it('whose name was taken for a file says what was meant', async () => {
    const { code, err } = await audit('--plan', 'fsdp', '--mesh', 'dp=8');
    expect(code).toBe(2);
    expect(err).toContain('give --plan recipe:fsdp');
    expect((await audit('--plan', 'nothing', '--mesh', 'dp=8')).err).toContain(
      'there is no file nothing',
    );
  });
});

import { expect, test } from 'vitest';

import { loadModel } from '../../../src/cli/input/load.ts';
import { plannable } from '../../../src/passes/plannable/plannable.ts';
import { leastCostPlan } from '../../../src/plan/least-cost-plan.ts';
import { prepare } from '../../../src/plan/prepare/prepare.ts';
import { Deadline } from '../../../src/plan/request/deadline.ts';
import { DEFAULT_REQUEST, type PlanRequest } from '../../../src/plan/request/request.ts';
import { neighbourhoodStart } from '../../../src/plan/solve/neighbourhood-start.ts';
import { solve } from '../../../src/solver/solve.ts';
import { FULL } from '../../support/full.ts';
import { differencesOf, load, TABLE } from '../support.ts';

/**
 * BERT base, forward pass: the word embedding is most of the weights. Within 70 % of the peak of
 * the fastest plan the bound mixes plans with it whole and with it cut, and the proof alone ends 13
 * % from its bound.
 */
test.runIf(FULL)(
  'one large tensor under a tight budget: neighbourhood search finds what the proof needs',
  async () => {
    const request: PlanRequest = {
      ...DEFAULT_REQUEST,
      mesh: 'dp=2,tp=4',
      cluster: 'dgx-h100',
      inputs: 'free',
      outputs: 'free',
      memoryBytes: 164_308_121,
    };
    const { graph, table } = await loadModel('bert-base-uncased', {
      forward: true,
      batch: 8,
      seq: 512,
    });
    const { problem } = prepare(plannable(graph, table), request, table).left.compact;
    const quick = await solve(problem, {
      engine: 'exact',
      certify: false,
      gap: 0.0025,
      workLimit: 8e6,
    });
    expect(quick.gap).toBeGreaterThan(0.1);
    const known = { starts: [quick.choice], bound: quick.bound };
    const better = await neighbourhoodStart(problem, known, request, new Deadline(undefined));
    if (better === undefined) throw new Error('nothing was found');
    expect(await neighbourhoodStart(problem, known, request, new Deadline(undefined))).toEqual(
      better,
    );
    const proven = await solve(problem, {
      engine: 'exact',
      gap: 0.0025,
      workLimit: 2e8,
      searchesWide: true,
      starts: [better],
    });
    expect(proven.gap).toBeLessThan(0.005);
    expect(proven.objective).toBeLessThan(0.9 * quick.objective);
  },
  120_000,
);

/**
 * BERT base, joint graph: attention's output is cut, and what is gathered of it waits for the
 * backward pass beside it, 6 MiB a layer. A row that counts the cut one alone had a gap of 7 %. What
 * is left is what no row counts: copies in flight, and the pieces that they are laid out from.
 */
test('gathered copies beside what they were gathered from count in the row, and in its certificate', async () => {
  const memoryBytes = Math.floor(0.645 * 2 ** 30);
  const request: PlanRequest = {
    ...DEFAULT_REQUEST,
    mesh: 'd=8',
    cluster: 'dgx-h100',
    inputs: 'free',
    outputs: 'free',
    memoryBytes,
  };
  const graph = load('torch/bert-base/joint.expanded');
  const made = await leastCostPlan(graph, request, { table: TABLE });
  if (made.status !== 'planned') throw new Error('no plan');
  const { plan, certificate } = made;
  expect(plan.memory.peakBytes).toBeLessThanOrEqual(memoryBytes);
  expect(plan.proof.gap).toBeLessThan(0.012);
  const { within } = certificate;
  expect(within?.storages).toEqual(within?.moments);
  expect(differencesOf(made)).toEqual([]);
  // Without those storages the problem is another one, whose bound the certificate does not prove.
  const { storages: _, ...bare } = within!;
  const other = { ...certificate, within: bare };
  expect(differencesOf({ ...made, certificate: other })).not.toEqual([]);
}, 60_000);

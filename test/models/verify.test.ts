import { describe, expect, it } from 'vitest';

import { buildModel } from '../../src/models/build.ts';
import { readModelConfig } from '../../src/models/families.ts';
import type { JsonRecord } from '../../src/models/read-config.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { DEFAULT_REQUEST } from '../../src/plan/request/request.ts';
import { verify } from '../../src/simulate/verify.ts';
import { FULL } from '../support/full.ts';
import { TINY } from './tiny.ts';

// The long runs belong to `npm run test:full`.

/**
 * Training graphs of the families run with numbers on virtual devices, against the run on one
 * device.
 */

const table = builtinOperators();

describe('sharded runs', () => {
  it.each([
    'deepseek_v3',
    ...(FULL ? ['bloom', 'mixtral', 'llama', 'gemma2', 'gpt_oss', 't5'] : []),
  ])(
    '%s: a plan of the training graph on 4 devices gives the numbers of one device',
    async (name) => {
      const model = readModelConfig(TINY[name] as JsonRecord);
      const graph = buildModel(model, {
        batch: 4,
        seq: 12,
        layers: 1,
        training: true,
        dtype: 'f32',
      });
      const request = {
        ...DEFAULT_REQUEST,
        mesh: 'dp=2,tp=2',
        cluster: 'dgx-h100',
        inputs: 'S(0)R',
      };
      const prepared = prepare(graph, request, table);
      const result = await leastCostPlanOf(prepared, {});
      if (result.status === 'infeasible') throw new Error(`${name} does not fit`);
      const { mismatches, maxRelativeError, nodesCompared, collectives } = verify(
        prepared.model.graph,
        result.plan,
        { table, seed: 0, tolerance: 1e-9 },
      );
      expect(mismatches).toEqual([]);
      expect(maxRelativeError).toBeLessThan(1e-9);
      expect(nodesCompared).toBeGreaterThan(50);
      // The batch is cut, so something has to be sent.
      expect(Object.values(collectives).reduce((a, b) => a + b, 0)).toBeGreaterThan(0);
    },
  );
});

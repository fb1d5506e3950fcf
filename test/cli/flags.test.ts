import { Option } from 'commander';
import { describe, expect, it } from 'vitest';

import * as catalogue from '../../src/cli/commands/catalogue/flags.ts';
import * as planning from '../../src/cli/commands/planning/flags.ts';
import * as reading from '../../src/cli/commands/reading/flags.ts';
import * as tools from '../../src/cli/commands/tools/flags.ts';
import * as written from '../../src/cli/commands/written-plan/flags.ts';
import { type Flags, longName, readFlags, requestOfFlags } from '../../src/cli/input/flags/flag.ts';
import { readRequest } from '../../src/plan/record/folder.ts';
import { DEFAULT_REQUEST } from '../../src/plan/request/request.ts';

/**
 * A flag stands once: its record gives the name, the help, the value and the field of the request.
 */
const ROOMS: readonly Readonly<Record<string, Flags>>[] = [
  catalogue,
  planning,
  reading,
  tools,
  written,
];
const COMMANDS = ROOMS.flatMap((room) => Object.entries(room));

describe('flags', () => {
  it.each(COMMANDS)(
    '%s: every record has the name of its value, and its default can be read',
    async (_, flags) => {
      for (const [key, { usage, initial }] of Object.entries(flags)) {
        const option = new Option(usage);
        expect(option.attributeName(), usage).toBe(key);
        if (!option.negate) expect(usage).toContain(longName(key));
        if (initial !== undefined) await readFlags({ [key]: flags[key] }, {});
      }
    },
  );

  it('of plan ask for what the request says, and for nothing where none stands', async () => {
    const { output: _, frontier: __, ...flags } = planning.PLAN_COMMAND;
    const none = await readFlags(flags, {
      mesh: 'dp=2',
      cluster: 'dgx-h100',
      sharing: true,
      recipes: true,
    });
    const base = { ...DEFAULT_REQUEST, mesh: '', cluster: '' };
    expect(requestOfFlags(flags, none, base)).toEqual({
      ...DEFAULT_REQUEST,
      mesh: 'dp=2',
      cluster: 'dgx-h100',
    });
    const all = await readFlags(flags, {
      mesh: 'dp=2,tp=2',
      cluster: 'dgx-a100-80gb',
      pin: ['w=S(0)R', 'x=RR'],
      ignoreShardings: true,
      cost: 'nccl',
      solver: 'exact',
      gap: '0',
      seed: '7',
      uneven: 'forbid',
      strided: 'all',
      unknown: 'replicate',
      sharing: false,
      inputs: 'RR',
      outputs: 'S(0)R',
      objective: 'parameter-memory',
      maps: 'rows',
      cut: ['_S(0, 3)'],
      memory: '2KiB',
      optimizer: 'sgd',
      activations: 'constraint',
      checkpoint: '50%',
      timeLimit: '1.5',
      overlap: true,
      batchDim: ['x=0'],
      sequenceDim: ['x=1', 'y=0'],
    });
    const request = requestOfFlags(flags, all, base);
    expect(request).toEqual({
      mesh: 'dp=2,tp=2',
      cluster: 'dgx-a100-80gb',
      pins: [
        { node: 'w', spec: 'S(0)R' },
        { node: 'x', spec: 'RR' },
      ],
      shardings: 'ignore',
      cost: 'nccl',
      solver: 'exact',
      gap: 0,
      budgetGap: 0,
      seed: 7,
      uneven: 'forbid',
      strided: 'all',
      unknown: 'replicate',
      sharing: false,
      inputs: 'RR',
      outputs: 'S(0)R',
      objective: 'parameter-memory',
      maps: 'rows',
      cuts: ['_S(0, 3)'],
      memoryBytes: 2048,
      optimizer: 'sgd',
      activations: 'constraint',
      checkpoint: 0.5,
      timeLimitSeconds: 1.5,
      overlap: true,
      inputDims: { batch: { x: 0 }, sequence: { x: 1, y: 0 } },
    });
    expect(readRequest(JSON.stringify(request))).toEqual(request);
  });
});

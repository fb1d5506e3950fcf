import { describe, expect, it } from 'vitest';

import { cli } from '../../support.ts';

const RUN = ['tune', 'model.fx.txt', '--devices', '4', '--cluster', 'cluster.json'];

describe('tune --run', () => {
  it('starts a process for each device, and passes on what they print', async () => {
    const run = await cli(
      ...[...RUN, '--run', '--python', 'echo', '--plans', '3', '--memory', '2GiB'],
      ...['--time-limit', '90', '-o', 'fastest', '--quiet', '--json'],
    );
    expect(run).toEqual({
      code: 0,
      out:
        '-m torch.distributed.run --nproc-per-node 4 -m shardwright.tune model.fx.txt ' +
        '--cluster cluster.json --plans 3 --memory 2147483648B --seconds 90 --out fastest --json ' +
        '--quiet\n',
      err: '',
    });
  });

  it('says that the Python is not there, or that it failed, and how another one is named', async () => {
    const absent = await cli(...RUN, '--run', '--python', 'no-such-python');
    expect([absent.code, absent.err]).toEqual([
      2,
      expect.stringMatching(/^E_RUN no-such-python cannot be started: .*\n {2}hint: --python /),
    ]);
    const failed = await cli(...RUN, '--run', '--python', 'false');
    expect([failed.code, failed.err]).toEqual([
      2,
      expect.stringMatching(/^E_RUN false ended with exit code 1\n {2}hint: it needs PyTorch/),
    ]);
  });

  it.each([
    [['--run', '--seq', '8'], '--run does not take --seq'],
    [['--run', '--risk', '0.1'], '--run does not take --risk'],
    [['--plans', '3'], '--plans is for --run'],
    [['--python', 'python3'], '--python is for --run'],
  ])('refuses %s', async (flags, said) => {
    const run = await cli(...RUN, ...flags);
    expect([run.code, run.err.split('\n')[0]]).toEqual([2, `E_USAGE ${said}`]);
  });
});

/**
 * CPU seconds of simulating a plan folder, reading it left out: the schedule, and the schedule
 * played with every choice of prefetch and buckets. The aim for a plan of 32 layers is below one
 * second.
 *
 *     npx tsx bench/simulate.ts out/
 */
import { wholePlan } from '../src/cli/input/plan-folder.ts';
import { builtinOperators } from '../src/ops/builtin.ts';
import { simulate } from '../src/simulate/timeline/simulate.ts';

const [, , folder] = process.argv;
if (folder === undefined) throw new Error('name a plan folder');
const { plan, program } = wholePlan(folder);
const table = builtinOperators();
for (const what of ['first', 'second']) {
  const before = process.cpuUsage();
  const { schedule, timeline } = simulate(program, plan, { table });
  const { user, system } = process.cpuUsage(before);
  console.log(
    `${what} run: ${((user + system) / 1e6).toFixed(2)} CPU-seconds for ` +
      `${schedule.tasks.length} tasks, a step of ${(timeline.seconds * 1e3).toFixed(1)} ms`,
  );
}

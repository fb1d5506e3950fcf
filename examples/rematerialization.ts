/**
 * Memory against recomputation, without placements: a chain of stages (Rotor), a small graph with a
 * skip (Checkmate), and the memory of a backward pass for a choice of values to keep. Figures are
 * what a profiler would give for one device. Run: npx tsx examples/rematerialization.ts
 */
import {
  bestKept,
  checkmate,
  evaluateKept,
  kneeBudget,
  recomputeGraph,
  rotor,
} from 'shardwright/checkpointing';

// A chain: eight blocks, outputs of 16 MiB, 96 MiB with everything that a backward pass needs. One
// slot is 16 MiB.
const blocks = Array.from({ length: 8 }, () => ({
  forwardSeconds: 0.01,
  backwardSeconds: 0.02,
  inputSlots: 1,
  savedSlots: 6,
}));
console.log('chain of 8 blocks');
for (const slots of [50, 32, 20, 12, 8]) {
  const schedule = rotor(blocks, slots);
  const found =
    schedule === undefined
      ? 'nothing fits'
      : `${(schedule.seconds * 1e3).toFixed(0)} ms, ` +
        `${schedule.steps.filter((s) => s.kind !== 'backward').length} forward runs`;
  console.log(`  ${String(slots * 16).padStart(3)} MiB: ${found}`);
}

// A graph: a -> b -> c -> d with a skip from a to d, and its backward pass. An expensive node (b)
// and a large one (c).
const graph = {
  nodes: [
    { name: 'a', bytes: 10, seconds: 1, needs: [] },
    { name: 'b', bytes: 10, seconds: 5, needs: [0] },
    { name: 'c', bytes: 30, seconds: 1, needs: [1] },
    { name: 'd', bytes: 10, seconds: 1, needs: [0, 2] },
    { name: 'grad d', bytes: 10, seconds: 2, needs: [3] },
    { name: 'grad c', bytes: 10, seconds: 2, needs: [2, 4] },
    { name: 'grad b', bytes: 10, seconds: 6, needs: [1, 5] },
    { name: 'grad a', bytes: 10, seconds: 2, needs: [0, 6] },
  ],
};
console.log('graph with a skip');
for (const limit of [70, 60, 50, 40]) {
  const answer = await checkmate(graph, limit);
  if (answer.status === 'infeasible') console.log(`  ${limit} bytes: nothing fits`);
  else {
    const runs = answer.stages.flatMap(({ computed }) => computed.map((i) => graph.nodes[i].name));
    const again = runs.filter((name, at) => runs.indexOf(name) < at);
    console.log(
      `  ${limit} bytes: ${answer.seconds} s, peak ${answer.peakBytes}, again: ` +
        `${again.join(', ') || 'nothing'}`,
    );
  }
}

// Values that may be kept: a knapsack picks them, the evaluator says what the backward pass then
// holds while it recomputes.
const values = [
  { name: 'norm', bytes: 4, seconds: 1 },
  { name: 'matmul', bytes: 8, seconds: 10 },
  { name: 'gelu', bytes: 8, seconds: 2 },
  { name: 'softmax', bytes: 16, seconds: 4 },
];
const program = {
  nodes: [
    { name: 'x', inputs: [] },
    { name: 'norm', inputs: ['x'] },
    { name: 'matmul', inputs: ['norm'] },
    { name: 'bias', inputs: ['matmul'] },
    { name: 'gelu', inputs: ['bias'] },
    { name: 'softmax', inputs: ['gelu'] },
  ],
};
const kept = recomputeGraph(program, values);
const keep = (budget: number): readonly number[] => bestKept(values, budget).kept;
console.log('values to keep');
for (const budget of [36, 20, 8, 0]) {
  const choice = keep(budget);
  const { recomputeSeconds, keptBytes, backwardPeakBytes } = evaluateKept(kept, choice);
  console.log(
    `  within ${budget}: keep ${choice.map((i) => values[i].name).join(', ') || 'nothing'} ` +
      `(${keptBytes} bytes), ${recomputeSeconds} s again, ${backwardPeakBytes} bytes at the ` +
      'peak',
  );
}
console.log(`  knee at ${kneeBudget(kept, keep, 0, 36, 10)} bytes`);

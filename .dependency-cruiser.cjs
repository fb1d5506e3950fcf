/**
 * The rows of the house: a room imports only from rows below its own. Neighbours in one row do not
 * meet, with two exceptions: `models` may use `trace`, and the rooms of row 9 stand alone.
 */
const rows = [
  ['text', 'platform'],
  ['graph', 'mesh', 'solver', 'ndarray'],
  ['ops', 'contest'],
  ['local-spmd'],
  ['cost'],
  ['notations', 'passes'],
  ['trace', 'import', 'models', 'strategy'],
  ['plan'],
  ['lower'],
  ['simulate'],
  ['step'],
  ['backend', 'recipes'],
  ['trainers'],
  ['sweep'],
  ['fidelity'],
  ['report', 'export'],
  ['cli'],
];
const forbidden = [
  { name: 'no-circular', severity: 'error', from: {}, to: { circular: true } },
  {
    name: 'not-to-dev-dependency',
    comment: 'zod is linked into dist; typescript is a peer that only the readers of programs need',
    severity: 'error',
    from: { path: '^src' },
    to: {
      dependencyTypes: ['npm-dev', 'npm-no-pkg', 'npm-unknown'],
      pathNot: 'node_modules/(zod|typescript)/',
    },
  },
  {
    name: 'not-to-test',
    severity: 'error',
    from: { path: '^src' },
    to: { path: '^(test|bench|examples|scripts)' },
  },
  {
    name: 'solver-knows-no-tensors',
    severity: 'error',
    from: { path: '^src/(solver|contest)' },
    to: { path: '^src/', pathNot: '^src/(solver|contest|platform|defined\\.ts)' },
  },
  {
    name: 'node-through-the-platform',
    comment:
      'what runs in a page knows Node by src/platform alone; the hooks of its module loader ' +
      'are Node itself',
    severity: 'error',
    from: {
      path: '^src/',
      pathNot:
        '^src/(platform/(node|read-file)\\.ts$|cli/|trace/source/(register|register-main|loader|vite)\\.ts$|.*worker\\.mjs$|sweep/threads/thread\\.mjs$)',
    },
    to: { dependencyTypes: ['core'] },
  },
  {
    name: 'platform-by-its-door',
    severity: 'error',
    from: { path: '^src/', pathNot: '^src/platform/' },
    to: { path: '^src/platform/(node|browser|local-thread|package-data|hash|unpack-gzip)\\.ts$' },
  },
  {
    name: 'files-of-users-are-for-the-command-line',
    severity: 'error',
    from: { path: '^src/', pathNot: '^src/(cli/|platform/node\\.ts$)' },
    to: { path: '^src/platform/read-file\\.ts$' },
  },
  {
    name: 'shard-and-audit-are-for-users',
    comment: 'rooms search for the plan of least cost; `shard` chooses between it and the recipes',
    severity: 'error',
    from: { path: '^src/', pathNot: '^src/(cli/|entries/|index\\.ts$)' },
    to: { path: '^src/(shard|audit)\\.ts$' },
  },
  {
    name: 'entries-are-for-users',
    comment: 'the entry points of the package are its only barrels',
    severity: 'error',
    from: { path: '^src/', pathNot: '^src/cli/' },
    to: { path: '^src/(index\\.ts$|entries/)' },
  },
];
const mayMeet = { models: ['trace'] };
rows.forEach((rooms, row) => {
  for (const room of rooms) {
    const above = rows.slice(row + 1).flat();
    const neighbours = rooms.filter((r) => r !== room && !(mayMeet[room] ?? []).includes(r));
    forbidden.push({
      name: `row-${row + 1}-${room}`,
      comment: `src/${room} may import only from lower rows`,
      severity: 'error',
      from: { path: `^src/${room}/` },
      to: { path: `^src/(${[...above, ...neighbours].join('|')})/` },
    });
  }
});

/**
 * The rooms inside: sub-rooms (folders, or files at the root of the room) in rows, bottom first. A
 * sub-room imports only from rows below its own; neighbours in one row do not meet.
 */
const inside = {
  solver: [
    ['types', 'store'],
    ['check', 'problem'],
    ['network', 'milp'],
    ['dual', 'eliminate'],
    ['fold', 'reduce'],
    ['search'],
    ['prove'],
    ['preferences', 'solve'],
  ],
  contest: [
    ['iopddl', 'options'],
    ['anytime-run'],
    ['model'],
    ['bound'],
    ['lns'],
    ['run'],
    ['finish'],
    ['proof'],
    ['conclude'],
    ['anytime'],
  ],
  plan: [
    ['request'],
    ['model'],
    ['restrict'],
    ['prepare'],
    ['record'],
    ['choice'],
    ['solve'],
    ['budget'],
    ['choose', 'impossible'],
    ['least-cost-plan'],
    ['questions'],
  ],
  trainers: [
    ['runs'],
    ['framework', 'layout', 'roles', 'shell'],
    ['trainer'],
    ['accelerate', 'autoparallel', 'deepspeed', 'fsdp2', 'maxtext', 'megatron', 'shardwright'],
    ['nemo', 'others', 'torchtitan'],
    ['megatron-bridge'],
    ['trainers'],
    ['launch-files', 'read-layout-file'],
    ['edit-layout-file'],
  ],
  passes: [
    ['call-context', 'canonical', 'dead-code', 'sizes', 'training'],
    ['control', 'fusion'],
    ['plannable'],
    ['checkpoint'],
    ['autodiff'],
  ],
  trace: [
    ['errors'],
    ['sizes'],
    ['record'],
    ['tensor'],
    ['control', 'source'],
    ['custom', 'lint', 'nn', 'spmd', 'trace'],
    ['capture'],
  ],
  cli: [['output', 'runtime'], ['input'], ['commands'], ['program'], ['main']],
  mesh: [['placements'], ['devices'], ['sharding'], ['views'], ['local-types']],
  notations: [['layout', 'einsum'], ['einshard'], ['draw', 'einshard-program']],
  cost: [
    ['collective-model', 'memory'],
    ['hardware', 'jumps', 'redistribution'],
    ['kernels'],
    ['collectives', 'compute'],
    ['presets', 'training'],
    ['error-bands'],
  ],
  simulate: [
    ['interpreter', 'inputs'],
    ['ranks'],
    ['evaluate'],
    ['off-on', 'reduced'],
    ['verify'],
    ['strip'],
    ['pipeline', 'rule-check'],
    ['work'],
    ['timeline'],
    ['call-order', 'overlap'],
  ],
  step: [
    ['checkpoints', 'layers', 'traffic', 'units', 'zero-mode'],
    ['layout', 'overlap', 'states'],
    ['data-groups', 'unit'],
    ['device-sums', 'read'],
    ['costs'],
  ],
  'step/read': [
    ['attention-paths', 'gradient-roots', 'graph-units', 'joined-calls'],
    ['moves', 'program-kernels', 'saved'],
    ['moe', 'parameters'],
    ['plan-reader'],
  ],
  sweep: [
    ['model'],
    ['inference', 'rank'],
    ['threads', 'step'],
    ['sweep', 'resume', 'plan-names'],
    ['conclude', 'optima', 'what-if'],
    ['compare-model'],
    ['planning'],
    ['layout', 'pipeline'],
  ],
  'sweep/inference': [['program', 'question'], ['layouts', 'pass-price'], ['inference']],
  'sweep/rank': [['data-costs', 'tied-embedding', 'unconstrained'], ['rank-price']],
  'sweep/step': [
    ['faster-links', 'layouts', 'tried-checkpoints', 'units'],
    ['stages', 'step-traffic'],
    ['composed-layout'],
    ['compose'],
    ['expert-cuts', 'row-pricer'],
  ],
  report: [
    ['formats', 'markup', 'analysis'],
    ['figures', 'model'],
    ['text'],
    ['sections'],
    ['html'],
    ['written'],
  ],
  ops: [
    ['record'],
    ['expansion', 'flops', 'program-flops', 'list-operators', 'kernels', 'rules', 'strides'],
    ['registry', 'stablehlo', 'spmd'],
    ['vjp'],
    ['aten'],
    ['builtin', 'samples'],
  ],
  'ops/vjp': [
    ['layout'],
    ['build'],
    ['vjp'],
    ['composite', 'elementwise', 'movement', 'products', 'reductions', 'spmd'],
    ['table'],
  ],
  'ops/kernels': [
    ['elementwise', 'movement'],
    ['reductions', 'stablehlo'],
    ['products'],
    ['table'],
    ['evaluate'],
  ],
  'passes/autodiff': [
    ['kept-region', 'phases', 'retention', 'wanted'],
    ['activity'],
    ['bodies'],
    ['forward'],
    ['backward'],
    ['joint'],
  ],
  'passes/control': [
    ['body-writer', 'control-form', 'inline-calls'],
    ['cfg', 'rewrite-control'],
    ['loops', 'predicate'],
  ],
  lower: [
    ['program'],
    ['local-call', 'member-names', 'redistribution', 'rules-taken'],
    ['control', 'promised', 'rewrites'],
    ['mover', 'typed'],
    ['outputs'],
    ['lower'],
  ],
  'import/onnx': [
    ['file'],
    ['constant', 'infer-types'],
    ['call', 'context'],
    ['operators', 'weights'],
    ['builder'],
    ['lower'],
    ['import'],
    ['foreign'],
  ],
  'import/jaxpr': [
    ['text'],
    ['builder', 'count', 'shardings'],
    ['equation'],
    ['primitives'],
    ['lower'],
    ['import'],
    ['foreign'],
  ],
  export: [
    ['hlo'],
    ['einshard', 'torch'],
    ['jax', 'torch-dtensor'],
    ['shardy'],
    ['targets'],
    ['export'],
  ],
  models: [
    ['read-config'],
    ['architecture', 'layers'],
    ['families'],
    ['registry', 'vocabulary'],
    ['build'],
  ],
};
for (const [room, floors] of Object.entries(inside))
  floors.forEach((names, floor) => {
    const above = floors.slice(floor + 1).flat();
    for (const name of names) {
      const others = [...above, ...names.filter((other) => other !== name)];
      if (others.length === 0) continue;
      forbidden.push({
        name: `${room}/${name}`,
        comment: `src/${room}/${name} may import only from lower sub-rooms of src/${room}`,
        severity: 'error',
        from: { path: `^src/${room}/${name}(/|\\.ts$)` },
        to: { path: `^src/${room}/(${others.join('|')})(/|\\.ts$)` },
      });
    }
  });
// The judge of the solver: it shares no code with the engines that it checks.
forbidden.push({
  name: 'checker-shares-no-code',
  severity: 'error',
  from: { path: '^src/solver/check/' },
  to: { path: '^src/', pathNot: '^src/solver/(check/|types\\.ts$)' },
});
// A step of planning knows the steps before it alone: no search prepares a request or plans again.
const steps = [
  'request/',
  '(model|record)/',
  'restrict/',
  'prepare/',
  'choice/',
  'solve/',
  'budget/',
  '(shard|choose|impossible)\\.ts$',
  'questions/',
];
steps.slice(0, -1).forEach((step, i) =>
  forbidden.push({
    name: `plan-${step.replace(/[^a-z|]/g, '')}-knows-no-later-step`,
    severity: 'error',
    from: { path: `^src/plan/${step}` },
    to: { path: `^src/plan/(${steps.slice(i + 1).join('|')})` },
  }),
);
// Folders with entries: other folders import only these files of them.
const doors = {
  'cli/commands/catalogue': ['register'],
  'cli/commands/planning': ['register', 'plan', 'plan-pipeline'],
  'cli/commands/reading': ['register'],
  'cli/commands/tools': ['register'],
  'cli/commands/written-plan': ['register'],
  'cost/presets': ['presets', 'names', 'dtensor'],
  'export/hlo': ['program', 'code', 'constraints', 'sort-keys'],
  'export/jax': ['target', 'shardings'],
  'export/torch': ['target', 'run/doctor', 'run/lost-time', 'run/measured', 'run/trace'],
  'import/hlo': ['collectives'],
  'import/jaxpr': ['foreign'],
  'import/jaxpr/primitives': ['primitives', 'higher-order'],
  'import/mlir': ['foreign', 'sharding/gspmd'],
  'import/onnx': ['foreign'],
  'import/pt2': ['foreign'],
  'ops/kernels': ['evaluate', 'table'],
  'ops/stablehlo': ['operators'],
  'passes/autodiff': ['joint', 'from-parts', 'saved'],
  'passes/autodiff/bodies': ['control-vjp', 'body-gradients', 'differentiable-loops'],
  'passes/sizes': ['fix-sizes', 'shrink', 'dims'],
  'plan/budget': ['far-over', 'hold-budget', 'answer', 'types', 'rows/peak-problems'],
  'plan/restrict': ['restriction', 'pins', 'conflict', 'given-pins', 'typed-pins'],
  'report/html': ['page', 'drawings', 'blocks'],
  'report/sections': [
    'plan',
    'compared',
    'planning',
    'decision',
    'decision-rows',
    'options',
    'plan-decision',
  ],
  'simulate/rule-check': ['check', 'check-rules', 'explain'],
  contest: ['anytime', 'iopddl', 'options'],
  'contest/finish': ['endgame', 'dual-certificate', 'job'],
  'contest/lns': ['large-block', 'repair', 'operators'],
  'contest/proof': ['bound-by-parts'],
  'contest/run': ['rounds', 'member'],
  'solver/eliminate': ['buckets', 'pareto'],
  'solver/fold': ['fold', 'tied'],
  'solver/reduce': ['presolve', 'reduced-cost-fixing', 'fuse'],
  'solver/search/answer': ['certify', 'conflicts', 'lexicographic'],
  'solver/search/primal': ['folded-start', 'fusion-moves', 'gap-restricted'],
  'recipes/inputs': ['roles', 'dim-meanings', 'model-facts'],
  'sweep/threads': ['pool', 'local-pool', 'thread-pool', 'thread-main'],
};
for (const [folder, files] of Object.entries(doors))
  forbidden.push({
    name: `doors-of-${folder}`,
    severity: 'error',
    from: { path: '^src/', pathNot: `^src/(${folder}/|index\\.ts$)` },
    to: { path: `^src/${folder}/`, pathNot: `^src/${folder}/(${files.join('|')})\\.ts$` },
  });
module.exports = {
  forbidden,
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['import', 'require', 'node', 'default'],
      mainFields: ['main', 'types'],
    },
  },
};

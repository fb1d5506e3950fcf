/**
 * Arguments of the entry points as JavaScript may give them: a wrong one is refused by its name and
 * with the call that is right, before anything reads it.
 */
import { ShardwrightError, suggestion, valueText, wrongArgument } from '../../errors.ts';
import { DEFAULT_REQUEST, type PlanRequest } from './request.ts';

/** Every field of a request; the compiler keeps the list whole. */
const FIELDS: Readonly<Record<keyof PlanRequest, true>> = {
  mesh: true,
  cluster: true,
  memoryBytes: true,
  headroom: true,
  pins: true,
  shardings: true,
  optimizer: true,
  gradients: true,
  cost: true,
  solver: true,
  gap: true,
  budgetGap: true,
  timeLimitSeconds: true,
  seed: true,
  uneven: true,
  cuts: true,
  strided: true,
  unknown: true,
  sharing: true,
  joinedBodies: true,
  compiled: true,
  inputs: true,
  outputs: true,
  objective: true,
  maps: true,
  activations: true,
  checkpoint: true,
  recomputation: true,
  overlap: true,
  padVocabulary: true,
  inputDims: true,
};
const REQUIRED = ['mesh', 'cluster', ...Object.keys(DEFAULT_REQUEST)] as const;
const REQUEST_HINT = "give { ...DEFAULT_REQUEST, mesh: 'dp=8', cluster: 'dgx-h100' }.";

/** @throws E_REQUEST for what is no request, for an unknown field, and for a missing one */
export function checkRequest(request: unknown): void {
  if (!isRecord(request))
    throw new ShardwrightError('E_REQUEST', `the request is ${valueText(request)}`, {
      hint: REQUEST_HINT,
    });
  for (const field of Object.keys(request))
    if (!Object.hasOwn(FIELDS, field))
      throw new ShardwrightError('E_REQUEST', `a request has no field '${field}'`, {
        hint: suggestion(field, Object.keys(FIELDS), 'fields'),
      });
  for (const field of REQUIRED)
    if (request[field] === undefined)
      throw new ShardwrightError('E_REQUEST', `the request does not state '${field}'`, {
        hint: REQUEST_HINT,
      });
  for (const field of ['mesh', 'cluster'])
    if (typeof request[field] !== 'string')
      throw new ShardwrightError(
        'E_REQUEST',
        `'${field}' of the request is ${valueText(request[field])}, wanted a text`,
        { hint: REQUEST_HINT },
      );
  if (!Array.isArray(request['pins']))
    throw new ShardwrightError(
      'E_REQUEST',
      `'pins' of the request is ${valueText(request['pins'])}, wanted a list`,
      { hint: "give pins: [{ node: 'w1', spec: 'S(0)R' }]." },
    );
}

/** What an argument has to have. */
const WANTED = {
  graph: { fields: ['nodes', 'outputs', 'subgraphs'], hint: 'trace and importGraph give one.' },
  plan: { fields: ['nodes', 'outputs', 'request'], hint: 'give the `plan` of what shard gives.' },
  table: { fields: ['get', 'kinds'], hint: 'give builtinOperators().' },
  source: { fields: ['plan', 'program', 'table'], hint: 'exportSource gives one.' },
  prepared: { fields: ['model', 'question'], hint: 'prepare gives one.' },
} as const;

/**
 * @param call name of the function, for the message
 * @throws E_USAGE naming the argument that is none of its kind
 */
export function checkArguments(
  call: string,
  given: Readonly<Partial<Record<keyof typeof WANTED, unknown>>>,
): void {
  for (const [name, value] of Object.entries(given)) {
    const { fields, hint } = WANTED[name as keyof typeof WANTED];
    if (!isRecord(value)) throw wrongArgument(call, name, valueText(value), hint);
    const lacks = fields.find((field) => !(field in value));
    if (lacks !== undefined) throw wrongArgument(call, name, `an object without '${lacks}'`, hint);
  }
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

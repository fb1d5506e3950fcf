/**
 * The recipes that people write by hand, each as restrictions on the same problem that the
 * optimizer solves: what a recipe fixes is taken from it, everything else is still chosen as
 * cheaply as possible, and both are priced by one model.
 *
 * A recipe gives every mesh dim one part:
 *  - `replicate`: every tensor is replicated over it;
 *  - `data`: inputs are cut on their batch, parameters are stored whole;
 *  - `fsdp`: as `data`, but parameters are stored cut on their first dim and gathered before use;
 *  - `tensor`: Megatron's pairing: column weights cut on the output dim, row weights on the input
 *    dim, the token embedding on the vocabulary, all used as stored; everything else is stored
 *    whole;
 *  - `tensor-whole`, `tensor-sequence`: as `tensor`, with the residual stream whole over the dim,
 *    or cut on its sequence;
 *  - `context`, `ulysses`: inputs are cut on their sequence; attention takes its queries cut on the
 *    sequence, or on the heads, and keys and values move before they are repeated for the query
 *    heads that share them; parameters are stored whole. With `-fsdp` they are stored cut, as by
 *    `fsdp`;
 *  - `expert`: as `data`, and the weights of routed experts are cut on the expert dim and used as
 *    stored. `expert-fsdp`: the same, and other parameters are stored cut, as by `fsdp`;
 *  - `tensor-expert`: as `tensor-whole`, and the weights of routed experts are cut inside each
 *    expert, and used as stored. `tensor-sequence-expert`: the same as `tensor-sequence`.
 */
export type Part =
  | 'replicate'
  | 'data'
  | 'fsdp'
  | 'tensor'
  | 'tensor-whole'
  | 'tensor-sequence'
  | 'tensor-expert'
  | 'tensor-sequence-expert'
  | 'context'
  | 'context-fsdp'
  | 'ulysses'
  | 'ulysses-fsdp'
  | 'expert'
  | 'expert-fsdp';

/** Dim of the inputs that a part cuts; undefined: it leaves them whole. */
export function inputCut(part: Part): 'batch' | 'sequence' | undefined {
  switch (part) {
    case 'data':
    case 'fsdp':
    case 'expert':
    case 'expert-fsdp':
      return 'batch';
    case 'context':
    case 'context-fsdp':
    case 'ulysses':
    case 'ulysses-fsdp':
      return 'sequence';
    default:
      return undefined;
  }
}

/** Tells whether a part is one of tensor parallelism. */
export const isTensor = (part: Part): boolean => part.startsWith('tensor');
/** Tells whether a part cuts the weights of experts inside each expert. */
export const cutsInsideExperts = (part: Part): boolean =>
  part === 'tensor-expert' || part === 'tensor-sequence-expert';
/** Tells whether a part cuts the residual stream on its sequence between tensor regions. */
export const cutsStream = (part: Part): boolean =>
  part === 'tensor-sequence' || part === 'tensor-sequence-expert';
/** Tells whether a part cuts routed experts on the dim of the experts. */
export const cutsExperts = (part: Part): boolean => part === 'expert' || part === 'expert-fsdp';
/** Tells whether a part stores parameters cut on their first dim. */
export const storesCut = (part: Part): boolean => part.endsWith('fsdp');

export interface Recipe {
  readonly name: string;
  readonly parts: readonly Part[];
}

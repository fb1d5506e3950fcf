/**
 * The part of the address after `#`: the view, what of the question differs from the defaults, and
 * long texts (the program of the editor, the configuration of a trainer), packed.
 */
import { deflateSync, inflateSync, strFromU8, strToU8 } from 'fflate';

import type { Question } from '../protocol.ts';

export const VIEWS = ['plan', 'compare', 'tune', 'program', 'gallery', 'notations'] as const;
export type View = (typeof VIEWS)[number];

export const DEFAULTS: Question = {
  model: 'demo',
  mesh: 'dp=8,tp=8',
  cluster: 'dgx-h100',
  clusters: '',
  memory: '',
  batch: '',
  sequence: '',
  layers: '',
  optimizer: '',
  schedule: '',
  microbatches: '',
  pins: [],
  devices: '8',
  tokens: '',
  price: '',
  config: '',
};

/** Fields that stand in the address as they are. */
export const SHORT = [
  'model',
  'mesh',
  'memory',
  'batch',
  'sequence',
  'layers',
  'devices',
  'cluster',
  'clusters',
  'optimizer',
  'schedule',
  'microbatches',
  'tokens',
  'price',
] as const;

/** Views that ask the planner a question of the form. */
export const ASKING: readonly View[] = ['plan', 'compare', 'tune'];

export interface Address {
  readonly view: View;
  readonly question: Question;
  /** The program of the editor; empty where it is one of the examples. */
  readonly program: string;
  /** True if the page is a card in a page of somebody else: the answer alone. */
  readonly isCard: boolean;
}

/** Most characters of a packed text: longer addresses are cut by mail and chat programs. */
const MOST_PACKED = 16_000;
/** Most bytes of a text; what is packed holds a thousand times its own at most. */
const MOST_BYTES = 2 ** 18;

/** A dropped file does not fit, nor does a text that is too long. */
export function addressOf({ view, question, program, isCard }: Address): string {
  const parts = new URLSearchParams(view === 'plan' ? [] : [['view', view]]);
  if (isCard) parts.set('card', '1');
  for (const name of SHORT)
    if (
      question[name] !== DEFAULTS[name] &&
      !(name === 'model' && ['file', 'program'].includes(question[name]))
    )
      parts.set(name, question[name]);
  for (const pin of question.pins) parts.append('pin', pin);
  const texts = { config: view === 'tune' ? question.config : '', program };
  for (const [name, text] of Object.entries(texts)) {
    const packed = text === '' ? '' : packedText(text);
    if (packed !== '' && packed.length <= MOST_PACKED) parts.set(name, packed);
  }
  return parts.toString();
}

/** @returns the address, and the names of packed texts in it that cannot be read */
export function readAddress(hash: string): Address & { readonly broken: readonly string[] } {
  const parts = new URLSearchParams(hash.replace(/^#/, ''));
  const given = SHORT.flatMap((name) => (parts.has(name) ? [[name, parts.get(name) ?? '']] : []));
  const texts = { config: unpacked(parts.get('config')), program: unpacked(parts.get('program')) };
  const { config, program } = texts;
  return {
    view: VIEWS.find((view) => view === parts.get('view')) ?? 'plan',
    isCard: parts.get('card') === '1',
    question: {
      ...DEFAULTS,
      ...(Object.fromEntries(given) as Partial<Question>),
      pins: parts.getAll('pin'),
      config: config ?? '',
    },
    program: program ?? '',
    broken: Object.entries(texts).flatMap(([name, text]) => (text === undefined ? [name] : [])),
  };
}

/** The question of an address in a line, for a card. */
export function questionText({ view, question }: Pick<Address, 'view' | 'question'>): string {
  const { model, mesh, cluster, clusters, devices } = question;
  const at = view === 'compare' || view === 'tune' ? `${devices} devices` : mesh;
  const what = { tune: 'a configuration', program: 'a program', gallery: 'famous runs' };
  const name = view in what ? what[view as keyof typeof what] : model;
  return `${name} on ${at} of ${[cluster, clusters].filter((one) => one !== '').join(', ')}`;
}

/** Deflated, in base64 for addresses (RFC 4648, section 5). */
function packedText(text: string): string {
  const bytes = deflateSync(strToU8(text), { level: 9 });
  return btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replace(/=+$/, '');
}

/** The text; empty where there is none, undefined where it cannot be read or is too long. */
function unpacked(packed: string | null): string | undefined {
  if (packed === null || packed === '') return '';
  if (packed.length > MOST_PACKED) return undefined;
  try {
    const bytes = Uint8Array.from(atob(packed.replaceAll('-', '+').replaceAll('_', '/')), (c) =>
      c.charCodeAt(0),
    );
    const text = inflateSync(bytes);
    return text.length > MOST_BYTES ? undefined : strFromU8(text);
  } catch {
    return undefined;
  }
}

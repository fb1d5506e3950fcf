/**
 * Draws notations while the reader types: a figure like those of the report, and its meaning in
 * words.
 */
import { byId, input, select, settled } from './elements.ts';
import { Failed, type Planner } from './planner.ts';

const START = {
  placement: { text: 'S(0)R', shape: '8,8', mesh: 'dp=2,tp=4' },
  layout: { text: '(4,(2,2)):(2,(1,8))', shape: '', mesh: '' },
} as const;

export function startNotations(planner: Planner): () => void {
  const notation = (): 'placement' | 'layout' =>
    select('n-notation').value === 'layout' ? 'layout' : 'placement';
  let asked = 0;
  const draw = async (): Promise<void> => {
    const mine = ++asked;
    const words = byId('n-words', HTMLElement);
    const figure = byId('n-figure', HTMLElement);
    try {
      const answer = await planner.ask({
        kind: 'draw',
        drawing: {
          notation: notation(),
          text: input('n-text').value,
          shape: input('n-shape').value,
          mesh: input('n-mesh').value,
          order: select('n-order').value === 'lex' ? 'lex' : 'colex',
        },
      });
      if (mine !== asked) return;
      const drawing = new DOMParser().parseFromString(answer.svg, 'text/html').querySelector('svg');
      figure.replaceChildren(...(drawing === null ? [] : [drawing]));
      words.textContent = answer.text;
    } catch (error) {
      if (!(error instanceof Failed)) throw error;
      if (mine !== asked) return;
      figure.replaceChildren();
      words.textContent = [error.fault.message, error.fault.hint]
        .filter((t) => t !== '')
        .join('. ');
    }
  };
  const fields = (): void => {
    const isLayout = notation() === 'layout';
    input('n-shape').parentElement!.hidden = input('n-mesh').parentElement!.hidden = isLayout;
    select('n-order').parentElement!.hidden = !isLayout;
  };
  const restart = (): void => {
    const start = START[notation()];
    for (const name of ['text', 'shape', 'mesh'] as const) input(`n-${name}`).value = start[name];
    fields();
    void draw();
  };
  const soon = settled(60, () => void draw());
  for (const name of ['text', 'shape', 'mesh']) input(`n-${name}`).addEventListener('input', soon);
  select('n-order').addEventListener('change', soon);
  select('n-notation').addEventListener('change', restart);
  byId('n-form', HTMLFormElement).addEventListener('submit', (event) => event.preventDefault());
  return restart;
}

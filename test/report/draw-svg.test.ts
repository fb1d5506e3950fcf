import { describe, expect, test } from 'vitest';

import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { parseSharding } from '../../src/mesh/sharding/parse.ts';
import { matrixOfMatrices } from '../../src/notations/draw/matrix.ts';
import { DARK, FILL_INK, FILLS, LIGHT } from '../../src/notations/draw/palette.ts';
import { drawSvg } from '../../src/notations/draw/svg.ts';
import { placementDrawing, valuesDrawing } from '../../src/notations/draw/views.ts';

function placed(spec: string, mesh: string, shape: readonly number[]): string {
  const on = parseMesh(mesh);
  const { drawing, holders } = placementDrawing(
    parseSharding(spec, on, { rank: shape.length }),
    on,
    shape,
  );
  return drawSvg(drawing, { title: `${spec} on ${mesh}`, caption: 'Who holds what.', holders });
}

/** Every element of an XML text as `name attributes`; fails on what is not well formed. */
function elements(xml: string): { name: string; attributes: Map<string, string>; text: string }[] {
  const out: { name: string; attributes: Map<string, string>; text: string }[] = [];
  const open: { name: string; attributes: Map<string, string>; text: string }[] = [];
  let at = 0;
  const tag = /<(\/?)([a-zA-Z]+)((?:\s+[a-zA-Z0-9:-]+="[^"<]*")*)\s*(\/?)>/y;
  while (at < xml.length) {
    if (xml[at] !== '<') {
      const end = xml.indexOf('<', at);
      const text = xml.slice(at, end < 0 ? xml.length : end);
      expect(text).not.toMatch(/&(?!amp;|lt;|gt;|quot;)/);
      const inside = open.at(-1);
      if (inside !== undefined) inside.text += text;
      else expect(text.trim()).toBe('');
      at += text.length;
      continue;
    }
    tag.lastIndex = at;
    const found = tag.exec(xml);
    expect(found, xml.slice(at, at + 60)).not.toBeNull();
    if (found === null) break;
    const [whole, closing, name, rest, empty] = found;
    if (closing !== '') expect(open.pop()?.name).toBe(name);
    else {
      const pairs = [...rest.matchAll(/([a-zA-Z0-9:-]+)="([^"]*)"/g)].map(
        ([, k, v]) => [k, v] as const,
      );
      expect(new Set(pairs.map(([k]) => k)).size).toBe(pairs.length);
      const element = { name, attributes: new Map(pairs), text: '' };
      out.push(element);
      if (empty === '') open.push(element);
    }
    at += whole.length;
  }
  expect(open).toEqual([]);
  return out;
}

/** Contrast ratio of two colours, WCAG 2.2. */
function contrast(a: string, b: string): number {
  const light = (hex: string): number => {
    const [r, g, bl] = linear(hex);
    return 0.2126 * r + 0.7152 * g + 0.0722 * bl;
  };
  const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
}

function linear(hex: string): [number, number, number] {
  const part = (i: number): number => {
    const v = parseInt(hex.slice(i, i + 2), 16) / 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  };
  return [part(1), part(3), part(5)];
}

/** CIE L*a*b* (D65) of linear RGB. */
function lab([r, g, b]: readonly number[]): [number, number, number] {
  const f = (t: number): number =>
    t > (6 / 29) ** 3 ? Math.cbrt(t) : t / (3 * (6 / 29) ** 2) + 4 / 29;
  const x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
  const y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
  const z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

// Severity 1.0 of G. Machado, M. Oliveira, L. Fernandes (2009), on linear RGB.
const SIGHT: Readonly<Record<string, readonly (readonly number[])[]>> = {
  full: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

describe('what the picture says', () => {
  const svg = placed('S(0)S(1)', 'dp=2,tp=2', [4, 4]);
  const parts = elements(svg);
  const of = (name: string): typeof parts => parts.filter((p) => p.name === name);

  test('a cell for each element, in the colour of its device', () => {
    const cells = of('rect').filter((p) => p.attributes.get('class')?.startsWith('held'));
    expect(cells).toHaveLength(16);
    const labels = of('text').filter((p) => p.attributes.get('class')?.startsWith('label'));
    expect(labels.map((p) => p.text)).toEqual([
      '0',
      '0',
      '1',
      '1',
      '0',
      '0',
      '1',
      '1',
      '2',
      '2',
      '3',
      '3',
      '2',
      '2',
      '3',
      '3',
    ]);
    const colours = new Map<string, Set<string>>();
    cells.forEach((cell, i) => {
      const seen = colours.get(labels[i].text) ?? new Set();
      colours.set(labels[i].text, seen.add(cell.attributes.get('class') ?? ''));
    });
    expect([...colours.values()].map((s) => s.size)).toEqual([1, 1, 1, 1]);
    expect(new Set([...colours.values()].map((s) => [...s][0])).size).toBe(4);
  });

  test('one line for each border, through the whole picture where nothing stops it', () => {
    const lines = of('line').map((p) => p.attributes);
    expect(lines.map((a) => a.get('class'))).toEqual(['cut', 'cut']);
    const [upright, flat] = lines;
    expect(upright.get('x1')).toBe(upright.get('x2'));
    expect(flat.get('y1')).toBe(flat.get('y2'));
  });

  test('title and description for screen readers', () => {
    const root = parts[0].attributes;
    expect(root.get('role')).toBe('img');
    const ids = root.get('aria-labelledby')?.split(' ');
    expect([of('title')[0].attributes.get('id'), of('desc')[0].attributes.get('id')]).toEqual(ids);
    expect(of('title')[0].text).toBe('S(0)S(1) on dp=2,tp=2');
    expect(of('desc')[0].text).toBe(
      'A tensor of shape (4, 4) drawn as 4 rows and 4 columns. Who holds what. Dim 1 to the right, dim 0 downwards. ' +
        'Device 0 holds 4 of 16 elements. Device 1 holds 4 of 16 elements. Device 2 holds 4 of 16 elements. Device 3 holds 4 of 16 elements.',
    );
  });

  test('nothing from outside, nothing that runs, light and dark', () => {
    expect(svg.match(/https?:\/\/[^"]*/g)).toEqual(['http://www.w3.org/2000/svg']);
    expect(svg).not.toMatch(/<script|<image|<foreignObject|@import|url\((?!#)|\son\w+=/);
    expect(svg).toContain('prefers-color-scheme:dark');
    expect(svg).toContain(LIGHT.page);
    expect(svg).toContain(DARK.page);
  });

  test('everything lies inside the picture', () => {
    const number = (a: Map<string, string>, key: string): number => Number(a.get(key));
    for (const text of [
      placed('S(0)S(1)S(4)', 'a=2,b=2,c=2', [2, 2, 2, 2, 2]),
      placed('R', 'x=70', [2, 3]),
    ]) {
      const all = elements(text);
      const [, , width, height] = (all[0].attributes.get('viewBox') ?? '').split(' ').map(Number);
      const [dx, dy] = /translate\((\S+) (\S+)\)/.exec(text)?.slice(1).map(Number) ?? [NaN, NaN];
      for (const { name, attributes: a } of all) {
        if (name === 'rect' && a.get('class')?.startsWith('held')) {
          expect(number(a, 'x') + dx + number(a, 'width')).toBeLessThanOrEqual(width);
          expect(number(a, 'y') + dy + number(a, 'height')).toBeLessThanOrEqual(height);
        }
        if (name === 'line') {
          for (const key of ['x1', 'x2']) expect(number(a, key) + dx).toBeLessThanOrEqual(width);
          for (const key of ['y1', 'y2']) expect(number(a, key) + dy).toBeLessThanOrEqual(height);
        }
        if (name === 'text' && !(a.get('class') ?? '').startsWith('label'))
          expect(number(a, 'y')).toBeLessThan(height);
      }
    }
  });

  test('the same picture gives the same bytes, another one other ids', () => {
    expect(placed('S(0)S(1)', 'dp=2,tp=2', [4, 4])).toBe(svg);
    const other = elements(placed('S(0)R', 'dp=2,tp=2', [4, 4]))[0].attributes.get('id');
    expect(other).not.toBe(parts[0].attributes.get('id'));
  });
});

describe('strange input', () => {
  test('texts are escaped and control characters replaced', () => {
    const drawing = matrixOfMatrices([1], () => '<b>&"\u0001');
    const svg = drawSvg(drawing, { title: '</title><script>alert("x")</script>' });
    const parts = elements(svg);
    expect(parts.map((p) => p.name)).not.toContain('script');
    expect(parts.find((p) => p.attributes.get('class') === 'label')?.text).toBe(
      '&lt;b&gt;&amp;&quot;\ufffd',
    );
  });

  test('long device lists are broken into lines', () => {
    const labels = elements(placed('R', 'x=40', [1])).filter(
      (p) => p.attributes.get('class') === 'label on',
    );
    expect(labels.length).toBeGreaterThan(3);
    expect(labels.map((p) => p.text).join('')).toBe(
      Array.from({ length: 40 }, (_, i) => i).join(','),
    );
    for (const { text } of labels) expect(text.length).toBeLessThanOrEqual(17);
  });

  test('groups beyond the colours differ by an overlay', () => {
    const parts = elements(placed('S(0)', 'x=20', [20]));
    const looks = new Set<string>();
    let fill = '';
    for (const { name, attributes } of parts) {
      if (name !== 'rect') continue;
      if (attributes.get('class')?.startsWith('held'))
        looks.add((fill = attributes.get('class') ?? ''));
      const overlay = attributes.get('fill');
      if (overlay?.startsWith('url(#') && fill !== '') {
        expect(
          parts.some((p) => p.name === 'pattern' && `url(#${p.attributes.get('id')})` === overlay),
        ).toBe(true);
        looks.add(`${fill} ${overlay}`);
      }
    }
    expect(looks.size).toBe(20);
  });

  test('a scalar, and a picture that is too large', () => {
    expect(
      elements(drawSvg(valuesDrawing([]), { title: 'Scalar' })).filter((p) => p.name === 'line'),
    ).toEqual([]);
    expect(() => drawSvg(valuesDrawing([129, 128]), { title: 'x' })).toThrow(
      /16512 cells is more than 16384/,
    );
  });
});

describe('colours', () => {
  test('text has a contrast of at least 7 to 1 on coloured cells and 4.5 to 1 elsewhere', () => {
    for (const fill of FILLS) expect(contrast(fill, FILL_INK), fill).toBeGreaterThanOrEqual(7);
    for (const theme of [LIGHT, DARK]) {
      expect(contrast(theme.cell, theme.cellInk)).toBeGreaterThanOrEqual(7);
      expect(contrast(theme.page, theme.ink)).toBeGreaterThanOrEqual(7);
      expect(contrast(theme.page, theme.soft)).toBeGreaterThanOrEqual(4.5);
    }
  });

  test.each(Object.keys(SIGHT))('no two fills look the same: %s', (sight) => {
    const seen = FILLS.map((fill) => {
      const rgb = linear(fill);
      return lab(
        SIGHT[sight].map((row) =>
          Math.min(
            1,
            Math.max(
              0,
              row.reduce((sum, m, i) => sum + m * rgb[i], 0),
            ),
          ),
        ),
      );
    });
    for (let i = 0; i < seen.length; i++)
      for (let j = 0; j < i; j++) {
        const distance = Math.hypot(...seen[i].map((v, k) => v - seen[j][k]));
        expect(distance, `${FILLS[i]} and ${FILLS[j]}`).toBeGreaterThan(8);
      }
  });
});

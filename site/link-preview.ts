/**
 * What a link to the page shows where it is posted. In: the address at which the page will lie.
 * Out: tags of the Open Graph protocol (https://ogp.me). Those who show links ask for whole
 * addresses, so that without one a link has its words from `index.html`, and no picture.
 */
import type { HtmlTagDescriptor } from 'vite';

/** Pixels of `public/preview.png`. */
export const PREVIEW = { width: 1200, height: 630 };

export function previewTags(address: string | undefined): HtmlTagDescriptor[] {
  if (address === undefined) return [];
  const contents = {
    'og:url': new URL('./', address).href,
    'og:image': new URL('preview.png', address).href,
    'og:image:width': String(PREVIEW.width),
    'og:image:height': String(PREVIEW.height),
    'og:image:alt': 'A torchtitan configuration, and what to change in it',
  };
  return Object.entries(contents).map(([property, content]) => ({
    tag: 'meta',
    attrs: { property, content },
    injectTo: 'head',
  }));
}

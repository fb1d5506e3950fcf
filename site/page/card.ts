/** The card of an answer in a page of somebody else. In: its address. Out: the HTML to paste. */

/** Pixels that the first lines of an answer take. */
const HEIGHT = 380;

export function cardOf(address: string): string {
  const made = document.createElement('iframe');
  made.src = address;
  made.title = 'A plan by Shardwright';
  made.loading = 'lazy';
  made.setAttribute('style', `border: 0; width: 100%; height: ${HEIGHT}px`);
  return made.outerHTML;
}

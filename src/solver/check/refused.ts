/** The certificate does not prove what it says; the message says why. */
export class Refused extends Error {}

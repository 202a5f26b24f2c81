import type { Trace } from './document';

export type Step = Trace['steps'][number];

/** An octet of a packet; `changed` compares it with the place before, `fresh` was not there. */
export interface Octet {
  text: string;
  state: '' | 'changed' | 'fresh';
}

/** The octets of a place against those of the place before. Headers come and go in front, so that the ends are aligned. */
export function octets(before: string | undefined, now: string): Octet[] {
  const count = now.length / 2;
  const ahead = before === undefined ? 0 : count - before.length / 2;
  return Array.from({ length: count }, (_, index) => {
    const text = now.slice(index * 2, index * 2 + 2);
    if (before === undefined) return { text, state: '' };
    const old = index - ahead;
    if (old < 0) return { text, state: 'fresh' };
    return { text, state: before.slice(old * 2, old * 2 + 2) === text ? '' : 'changed' };
  });
}

/** Octets in hexadecimal digits as a capture file of one packet (pcap, with the link type Ethernet or raw IP). */
export function capture(
  hexadecimal: string,
  isFrame: boolean,
  at: number,
): Uint8Array<ArrayBuffer> {
  const length = hexadecimal.length / 2;
  const file = new DataView(new ArrayBuffer(40 + length));
  // draft-ietf-opsawg-pcap: magic number, version 2.4, snap length, link type 1 (Ethernet) or 101.
  file.setUint32(0, 0xa1b2c3d4);
  file.setUint16(4, 2);
  file.setUint16(6, 4);
  file.setUint32(16, 0xffff);
  file.setUint32(20, isFrame ? 1 : 101);
  file.setUint32(24, Math.floor(at / 1000));
  file.setUint32(28, (at % 1000) * 1000);
  file.setUint32(32, length);
  file.setUint32(36, length);
  for (let index = 0; index < length; index += 1)
    file.setUint8(40 + index, parseInt(hexadecimal.slice(index * 2, index * 2 + 2), 16));
  return new Uint8Array(file.buffer);
}

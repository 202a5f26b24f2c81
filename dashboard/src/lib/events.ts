/** Reads an answer of server-sent events to its end. */
export async function* messages(answer: Response): AsyncGenerator<{ event: string; data: string }> {
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const read = await reader?.read();
    rest += read?.value ?? '';
    const blocks = rest.split(/\r?\n\r?\n/);
    rest = blocks.pop() ?? '';
    for (const block of blocks) {
      let event = 'message';
      const data: string[] = [];
      for (const line of block.split(/\r?\n/)) {
        const [, field, value] = /^([^:]*): ?(.*)$/.exec(line) ?? [];
        if (field === 'event') event = value;
        else if (field === 'data') data.push(value);
      }
      yield { event, data: data.join('\n') };
    }
    if (!read || read.done) return;
  }
}

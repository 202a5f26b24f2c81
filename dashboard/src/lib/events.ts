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

/** Asks for a stream by a request, and gives its events; errors carry the gateway's words. */
export async function* posted(
  place: string,
  request: unknown,
  signal: AbortSignal,
): AsyncGenerator<{ event: string; data: string }> {
  const answer = await fetch(`/api/v1/${place}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(request),
    signal,
  });
  if (!answer.ok)
    throw new Error(
      ((await answer.json().catch(() => null)) as { error?: string } | null)?.error ??
        `the gateway answers ${answer.status}`,
    );
  for await (const { event, data } of messages(answer)) {
    if (event === 'error') throw new Error((JSON.parse(data) as { error: string }).error);
    yield { event, data };
  }
}

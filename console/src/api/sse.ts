// Reads server-sent events from a response. `EventSource` cannot send headers and hides the status of an error.

export interface Message {
  id: string;
  name: string;
  data: string;
}

/** Yields the messages of a stream until it ends. */
export async function* messages(stream: ReadableStream<Uint8Array>): AsyncGenerator<Message> {
  const reader = stream.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).replaceAll('\r\n', '\n').split('\n\n');
    rest = blocks.pop() ?? '';
    for (const block of blocks) {
      // JSON may contain separators of lines that are none here, which `.` only matches with the flag `s`.
      const fields = block.split('\n').map((line) => /^(\w+): ?(.*)$/s.exec(line) ?? ['', '', '']);
      const field = (name: string) => fields.filter(([, key]) => key === name).map(([, , text]) => text);
      const data = field('data').join('\n');
      // A comment keeps the connection open and has no data.
      if (data !== '') yield { id: field('id')[0] ?? '', name: field('event')[0] ?? 'message', data };
    }
  }
}

// The project of all requests. Only admins and auditors choose one; others have the project of their token.

let chosen: string | undefined;

export function project(): string | undefined {
  return chosen;
}

export function chooseProject(name: string | undefined): void {
  chosen = name;
}

/** A session has the project of its token. In another project, which may not exist, it would not be found. */
const WITHOUT_PROJECT = '/api/v1/sessions';

/** Returns the headers of a request that is authenticated by the cookie. */
export function headers({ method, url }: Request): [string, string][] {
  const list: [string, string][] = [];
  const hasProject = !new URL(url).pathname.startsWith(WITHOUT_PROJECT);
  if (chosen !== undefined && hasProject) list.push(['brokkr-project', chosen]);
  // No form or link of another site can set a header, so this proves that the console sends the request.
  if (method !== 'GET') list.push(['brokkr-console', '1']);
  return list;
}

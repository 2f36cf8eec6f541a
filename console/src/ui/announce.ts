// Tells screen readers what changed without a change of the focus.

const REGION = 'announcements';
const REPEAT_MS = 50;

/** Adds the region that screen readers watch. It has to exist before its text changes. */
export function addAnnouncer(): void {
  if (document.getElementById(REGION) !== null) return;
  const region = document.createElement('div');
  region.id = REGION;
  region.className = 'visually-hidden';
  region.setAttribute('role', 'status');
  // React Aria hides everything outside of a dialog, but for such regions.
  region.dataset['liveAnnouncer'] = 'true';
  document.body.append(region);
}

let repeating: ReturnType<typeof setTimeout> | undefined;

export function announce(text: string): void {
  const region = document.getElementById(REGION);
  if (region === null) return;
  clearTimeout(repeating);
  const isRepeated = region.textContent === text;
  region.textContent = isRepeated ? '' : text;
  // Without a change, screen readers say nothing.
  if (isRepeated) repeating = setTimeout(() => (region.textContent = text), REPEAT_MS);
}

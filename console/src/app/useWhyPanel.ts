// Opens and closes the side panel that explains a stack on an agent.

import { useNavigate } from '@tanstack/react-router';

export function useWhyPanel() {
  const navigate = useNavigate();
  const show = (why: string | undefined) =>
    void navigate({ to: '.', search: ((before: object) => ({ ...before, why })) as never });
  return {
    open: (stack: string, agent: string) => show(`${stack}/${agent}`),
    close: () => show(undefined),
  };
}

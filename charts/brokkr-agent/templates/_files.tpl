{{/*
The files below files/ are those of deploy/, which are the single source of what an agent needs in its cluster. As there, the
agent's namespace is put in wherever they say `brokkr-system`.
*/}}
{{- define "brokkr-agent.file" -}}
{{ .root.Files.Get (printf "files/%s" .name) | replace "brokkr-system" .root.Release.Namespace }}
{{- end }}

{{/*
Prints the objects of a text, one document each. What all agents of a cluster share is left out if another one brings it:
objects of the whole cluster without this agent's namespace in their names.
*/}}
{{- define "brokkr-agent.objects" -}}
{{- range $text := splitList "\n---\n" .text }}
{{- $object := fromYaml $text }}
{{- $definition := eq $object.kind "CustomResourceDefinition" }}
{{- $named := hasSuffix (printf ".%s" $.root.Release.Namespace) $object.metadata.name }}
{{- $own := or $object.metadata.namespace (and $named (not $definition)) }}
{{- if or $own $.root.Values.shared.create }}
{{- /* Without their kind, all records would go, and with them the knowledge of what is the agent's. */}}
{{- if $definition }}
{{- $_ := set $object.metadata "annotations" (dict "helm.sh/resource-policy" "keep") }}
{{- end }}
{{- if and (eq $object.kind "ConfigMap") (eq $object.metadata.name "brokkr-agent-fence") }}
{{- $accounts := list }}
{{- range $account := $.root.Values.impersonate }}
{{- $accounts = append $accounts (printf "system:serviceaccount:%s" (replace "/" ":" $account)) }}
{{- end }}
{{- $_ := set $object.data "accounts" (join " " $accounts) }}
{{- end }}
---
{{ toYaml $object }}
{{ end }}
{{- end }}
{{- end }}

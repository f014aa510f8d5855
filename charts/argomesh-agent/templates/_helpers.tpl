{{/* Names are constants: one agent works in a namespace. */}}
{{- define "agent.name" -}}argomesh-agent{{- end -}}

{{- define "agent.selector" -}}
app.kubernetes.io/name: argomesh-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The agent's pods alone: NetworkPolicies also bind a pod by which agentctl tries the way to the
     principal, which has the labels of agent.selector and another component. */}}
{{- define "agent.component" -}}app.kubernetes.io/component: agent{{- end -}}

{{- define "agent.labels" -}}
{{ include "agent.selector" . }}
app.kubernetes.io/part-of: argomesh
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* An image by its digest, where the values have one of it or of its name with tag. */}}
{{- define "agent.image" -}}
{{- $named := printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) -}}
{{- if .image.digest -}}{{ .image.repository }}@{{ .image.digest }}
{{- else -}}{{ $named }}{{ with index (.root.Values.imageDigests | default dict) $named }}@{{ . }}{{ end }}
{{- end -}}
{{- end -}}

{{/* The folder where every source puts the Workload API's socket. */}}
{{- define "agent.workloadAPI" -}}unix:///spiffe-workload-api/{{ .Values.identity.socket }}{{- end -}}

{{/* config as the agent reads it: the values, and under them what the chart knows. */}}
{{- define "agent.config" -}}
{{- $own := dict "namespace" .Release.Namespace "identity" (dict "socket" (include "agent.workloadAPI" .)) -}}
{{- toYaml (mergeOverwrite $own (deepCopy .Values.config)) -}}
{{- end -}}

{{/* The port of an address such as ":8443" or "0.0.0.0:8443"; empty for a unix socket. */}}
{{- define "agent.port" -}}
{{- if and . (not (hasPrefix "unix://" .)) -}}{{ regexFind "[0-9]+$" . }}{{- end -}}
{{- end -}}

{{/* Where config.mapping.namespaces lets Applications be beside the agent's own namespace:
     further names them, or everywhere is true when a pattern may name any. As JSON. */}}
{{- define "agent.applications" -}}
{{- $further := list -}}
{{- $everywhere := false -}}
{{- $mapping := .Values.config.mapping | default dict -}}
{{- range $mapping.namespaces -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" .) -}}
{{- $everywhere = true -}}
{{- else if ne . $.Release.Namespace -}}
{{- $further = append $further . -}}
{{- end -}}
{{- end -}}
{{- dict "further" (uniq $further) "everywhere" $everywhere | toJson -}}
{{- end -}}

{{/* Whether live access asks for a role that the chart does not know how to make. */}}
{{- define "agent.ownAccess" -}}
{{- $access := .Values.config.access | default dict -}}
{{- if and $access.enabled (or $access.rules $access.impersonate $access.tracked_only) -}}true{{- end -}}
{{- end -}}

{{/* What every container is allowed: nothing. */}}
{{- define "agent.securityContext" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
readOnlyRootFilesystem: true
{{- end -}}

{{/* envNames are the names of .Values.env, as JSON. */}}
{{- define "agent.envNames" -}}
{{- $names := list }}
{{- range .Values.env }}{{ $names = append $names .name }}{{ end }}
{{- toJson $names }}
{{- end }}

{{/* true when a policy has to let this pod in at Argo CD's Redis: asked for, or since another one
     lets in Argo CD's pods alone. Ours does not count, so that it stays when it is applied again. */}}
{{- define "agent.redisIngress" -}}
{{- $want := .Values.networkPolicy.redisIngress -}}
{{- if eq $want "always" }}true{{ end -}}
{{- if eq $want "auto" -}}
{{- $there := false -}}
{{- range (dig "items" list (lookup "networking.k8s.io/v1" "NetworkPolicy" .Release.Namespace "")) -}}
{{- if and (ne (dig "metadata" "labels" "app.kubernetes.io/part-of" "" .) "argomesh") (eq (dig "spec" "podSelector" "matchLabels" "app.kubernetes.io/name" "" .) "argocd-redis") -}}
{{- $there = true -}}
{{- end -}}
{{- end -}}
{{- $there -}}
{{- end -}}
{{- end -}}

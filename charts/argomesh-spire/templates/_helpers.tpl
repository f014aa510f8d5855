{{- define "spire.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end -}}

{{- define "spire.labels" -}}
{{ include "spire.selector" . }}
app.kubernetes.io/part-of: argomesh-spire
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* An image by its digest, where the values have one of it or of its name with tag. */}}
{{- define "spire.image" -}}
{{- $named := printf "%s:%s" .image.repository .image.tag -}}
{{- if .image.digest -}}{{ .image.repository }}@{{ .image.digest }}
{{- else -}}{{ $named }}{{ with index (.root.Values.imageDigests | default dict) $named }}@{{ . }}{{ end }}
{{- end -}}
{{- end -}}

{{- define "spire.trustDomain" -}}
{{ required "trustDomain: the trust domain of this cluster is required" .Values.trustDomain }}
{{- end -}}

{{/* What a container may that needs nothing of its node. */}}
{{- define "spire.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

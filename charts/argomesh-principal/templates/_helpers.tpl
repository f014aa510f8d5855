{{/* Names are constants: there is one principal in a namespace. */}}
{{- define "principal.name" -}}argomesh-principal{{- end -}}

{{- define "principal.selector" -}}
app.kubernetes.io/name: argomesh-principal
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "principal.labels" -}}
{{ include "principal.selector" . }}
app.kubernetes.io/part-of: argomesh
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The role of a cluster is named for its namespace, so that two hubs of one do not meet. */}}
{{- define "principal.clusterName" -}}{{ .Values.serviceAccount.name }}-{{ .Release.Namespace }}{{- end -}}

{{/* An image by its digest, where the values have one of it or of its name with tag. */}}
{{- define "principal.image" -}}
{{- $named := printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) -}}
{{- if .image.digest -}}{{ .image.repository }}@{{ .image.digest }}
{{- else -}}{{ $named }}{{ with index (.root.Values.imageDigests | default dict) $named }}@{{ . }}{{ end }}
{{- end -}}
{{- end -}}

{{/* The folder where every source puts the Workload API's socket. */}}
{{- define "principal.workloadAPI" -}}unix:///spiffe-workload-api/{{ .Values.identity.socket }}{{- end -}}

{{/* config as the principal reads it: the values, and under them what the chart knows. */}}
{{- define "principal.config" -}}
{{- $own := dict "namespace" .Release.Namespace "identity" (dict "socket" (include "principal.workloadAPI" .)) -}}
{{- if .Values.envoy.enabled -}}
{{- $_ := set $own "envoy" (dict "listen" "unix:///run/argomesh/xds.sock" "node_id" "argomesh-principal") -}}
{{- $_ := set $own "resource_proxy" (dict
      "url" (printf "https://argomesh-principal.%s.svc:9090" .Release.Namespace)
      "listen" "unix:///run/argomesh/resource-proxy.sock"
      "credentials" (dict "enabled" true "ca_bundle" true)) -}}
{{- if dig "resource_proxy" "credentials" "ca_file" "" .Values.config -}}
{{- $_ := unset $own.resource_proxy.credentials "ca_bundle" -}}
{{- end -}}
{{- end -}}
{{- toYaml (mergeOverwrite $own (deepCopy .Values.config)) -}}
{{- end -}}

{{/* The port of an address such as ":8443" or "0.0.0.0:8443"; empty for a unix socket. */}}
{{- define "principal.port" -}}
{{- if and . (not (hasPrefix "unix://" .)) -}}{{ regexFind "[0-9]+$" . }}{{- end -}}
{{- end -}}

{{/* The port on which Envoy takes Argo CD for the Redis proxy; empty without one. */}}
{{- define "principal.redisPort" -}}
{{- $config := include "principal.config" . | fromYaml -}}
{{- if and .Values.envoy.enabled (dig "redis_proxy" "listen" "" $config) -}}
{{ include "principal.port" (dig "envoy" "redis" "0.0.0.0:6379" $config) }}
{{- end -}}
{{- end -}}

{{/*
The port on which the sidecar of a mesh takes agents; 0 for none. It is also that of the
Service to which config.mesh has the mesh bring them.
*/}}
{{- define "principal.sidecarPort" -}}
{{- $mesh := (include "principal.config" . | fromYaml).mesh | default dict -}}
{{- $exposure := dig "exposure" "" $mesh -}}
{{- $port := int .Values.service.sidecarPort -}}
{{- $ends := or (eq $exposure "gateway") (and $exposure (eq (dig "method" "" $mesh) "header")) -}}
{{- if or $ends (eq $exposure "passthrough") -}}
{{- $stream := int (dig "stream_port" 8443 $mesh) -}}
{{- if ne (int .Values.service.port) $stream -}}
{{- fail (printf "service.port: the mesh brings agents to port %d of the Service (config.mesh.stream_port): make the two one number" $stream) -}}
{{- end -}}
{{- if $ends -}}
{{- if not (has $port (list 0 $stream)) -}}
{{- fail (printf "service.sidecarPort: it is %d by config.mesh.stream_port: leave it out" $stream) -}}
{{- end -}}
{{- $port = $stream -}}
{{- end -}}
{{- end -}}
{{ $port }}
{{- end -}}

{{/*
Annotations of the pod in Istio: its proxy needs the folder of the unix socket on which a
listener of method header takes what the proxy brings.
*/}}
{{- define "principal.istioAnnotations" -}}
inject.istio.io/templates: sidecar,spire
{{- $config := include "principal.config" . | fromYaml -}}
{{- range $listener := dig "stream" "listeners" list $config }}
{{- if and (eq (default "" $listener.method) "header") (hasPrefix "unix:///run/argomesh/" (default "unix:///run/argomesh/" $listener.listen)) }}
sidecar.istio.io/userVolumeMount: '[{"name":"sockets","mountPath":"/run/argomesh"}]'
{{- break }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Ports of the pod that agents connect to, as a list of numbers. */}}
{{- define "principal.streamPorts" -}}
{{- $config := include "principal.config" . | fromYaml -}}
{{- $ports := list -}}
{{- range $address := concat (list (dig "stream" "listen" "" $config)) (list (dig "envoy" "stream" "" $config)) -}}
{{- with include "principal.port" $address -}}{{- $ports = append $ports (int .) -}}{{- end -}}
{{- end -}}
{{- range $listener := dig "stream" "listeners" list $config -}}
{{- if not (regexMatch "^(127\\.|\\[::1\\]|unix:)" (default "" $listener.listen)) -}}
{{- with include "principal.port" $listener.listen -}}{{- $ports = append $ports (int .) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- with int (include "principal.sidecarPort" .) -}}{{- $ports = prepend $ports . -}}{{- end -}}
{{- toJson ($ports | uniq) -}}
{{- end -}}

{{/* What every container is allowed: nothing. */}}
{{- define "principal.securityContext" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
readOnlyRootFilesystem: true
{{- end -}}

{{/* What the principal may do with a mesh's objects, for one of mesh.live's words. */}}
{{- define "principal.meshVerbs" -}}
{{- if eq . "apply" }}["get","list","watch","create","patch","delete"]{{ else }}["list","watch"]{{ end -}}
{{- end -}}

{{/* envNames are the names of .Values.env, as JSON. */}}
{{- define "principal.envNames" -}}
{{- $names := list }}
{{- range .Values.env }}{{ $names = append $names .name }}{{ end }}
{{- toJson $names }}
{{- end }}

{{/* true when a policy has to let this pod in at Argo CD's Redis: asked for, or since another one
     lets in Argo CD's pods alone. Ours does not count, so that it stays when it is applied again. */}}
{{- define "principal.redisIngress" -}}
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

{{/* What the test needs is there before it and gone after it, whether it passes or not. */}}
{{- define "principal.testRights" -}}
helm.sh/hook: test
helm.sh/hook-weight: "-1"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

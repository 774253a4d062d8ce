{{- define "tritonpy.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tritonpy.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tritonpy.serverSelector" -}}
{{ include "tritonpy.selector" . }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "tritonpy.routerSelector" -}}
{{ include "tritonpy.selector" . }}
app.kubernetes.io/component: router
{{- end -}}

{{- define "tritonpy.labels" -}}
{{ include "tritonpy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "tritonpy.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "tritonpy.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "tritonpy.image" -}}
{{- $repository := required "image.repository is empty, and no image is published: make one with `corectl compose`, push it, and name it with --set image.repository=REGISTRY/NAME" .repository -}}
{{- if .digest -}}
{{- printf "%s@%s" $repository .digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default "latest" .tag) -}}
{{- end -}}
{{- end -}}

{{/* Whether servers tell routers of themselves: the secret with the token, or nothing. */}}
{{- define "tritonpy.replicaToken" -}}
{{- if .Values.router.enabled -}}{{ .Values.router.replicaTokenSecret }}{{- end -}}
{{- end -}}

{{/* Pods of the servers by name, for queries: those of the router have one more part. */}}
{{- define "tritonpy.podPattern" -}}
{{ include "tritonpy.fullname" . }}-[0-9a-z]+-[0-9a-z]+
{{- end -}}

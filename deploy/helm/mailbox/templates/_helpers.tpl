{{- define "mailbox.labels" -}}
app.kubernetes.io/name: mailbox
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mailbox.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.name }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.name }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "mailbox.check" -}}
{{- if not (has .Values.backend (list "disk" "redis" "postgres")) }}{{ fail (printf "backend: invalid value %q; want disk, redis or postgres" .Values.backend) }}{{ end }}
{{- if ne .Values.backend "disk" }}
{{- if not .Values.backendSecret }}{{ fail "backendSecret: required with redis and postgres; a Secret with the key url" }}{{ end }}
{{- if not .Values.keySecret }}{{ fail "keySecret: required with redis and postgres; a Secret with the file keys" }}{{ end }}
{{- end }}
{{- if not (or .Values.tlsSecret .Values.plaintext) }}{{ fail "tlsSecret: required, or set plaintext to true" }}{{ end }}
{{- end }}

{{- define "mailbox.pod" -}}
metadata:
  labels: {{- include "mailbox.labels" . | nindent 4 }}
  {{- with .Values.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  # drain-delay, drain-timeout and a few seconds more.
  terminationGracePeriodSeconds: 30
  containers:
    - name: mailboxd
      image: {{ include "mailbox.image" . }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      env:
        # Below the mount point, because the daemon makes its directory itself, for its user alone.
        - {name: MAILBOXD_DATA_DIR, value: /var/lib/mailboxd/data}
        - {name: MAILBOXD_LISTEN, value: "0.0.0.0:9410"}
        - {name: MAILBOXD_LISTEN_OAP, value: "0.0.0.0:9411"}
        - {name: MAILBOXD_LISTEN_METRICS, value: "0.0.0.0:9412"}
        # Health and metrics have no TLS.
        - {name: MAILBOXD_INSECURE_LISTEN, value: "true"}
        {{- if .Values.sqs.enabled }}
        - {name: MAILBOXD_LISTEN_SQS, value: "0.0.0.0:{{ .Values.sqs.port }}"}
        {{- end }}
        {{- if .Values.tlsSecret }}
        - {name: MAILBOXD_TLS_CERT, value: /etc/mailboxd/tls/tls.crt}
        - {name: MAILBOXD_TLS_KEY, value: /etc/mailboxd/tls/tls.key}
        {{- end }}
        {{- if ne .Values.backend "disk" }}
        - name: MAILBOXD_BACKEND
          valueFrom: {secretKeyRef: {name: {{ .Values.backendSecret }}, key: url}}
        - {name: MAILBOXD_KEY_FILE, value: /etc/mailboxd/keys/keys}
        # Readiness fails for this long before the drain, so that no client is sent here.
        - {name: MAILBOXD_DRAIN_DELAY, value: 5s}
        {{- end }}
        {{- range $name, $value := .Values.settings }}
        - {name: {{ $name }}, value: {{ $value | quote }}}
        {{- end }}
      ports:
        - {name: http, containerPort: 9410}
        - {name: oap, containerPort: 9411}
        - {name: metrics, containerPort: 9412}
        {{- if .Values.sqs.enabled }}
        - {name: sqs, containerPort: {{ .Values.sqs.port }}}
        {{- end }}
      startupProbe:
        httpGet: {path: /healthz, port: metrics}
        periodSeconds: 2
        failureThreshold: 150
      livenessProbe:
        httpGet: {path: /healthz, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 5
      readinessProbe:
        httpGet: {path: /readyz, port: metrics}
        periodSeconds: 2
        failureThreshold: 2
      resources: {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - {name: data, mountPath: /var/lib/mailboxd}
        {{- if .Values.tlsSecret }}
        - {name: tls, mountPath: /etc/mailboxd/tls, readOnly: true}
        {{- end }}
        {{- if ne .Values.backend "disk" }}
        - {name: keys, mountPath: /etc/mailboxd/keys, readOnly: true}
        {{- end }}
  {{- if or .Values.tlsSecret (ne .Values.backend "disk") }}
  volumes:
    {{- if .Values.tlsSecret }}
    - name: tls
      secret: {secretName: {{ .Values.tlsSecret }}, defaultMode: 0440}
    {{- end }}
    {{- if ne .Values.backend "disk" }}
    - name: data
      emptyDir: {}
    - name: keys
      secret: {secretName: {{ .Values.keySecret }}, defaultMode: 0440}
    {{- end }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

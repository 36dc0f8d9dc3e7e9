{%- from 'sidle/map.jinja' import sidle with context %}
{#- Everything that the administrator chose goes through the shell as one word. -#}
{%- macro word(text) -%}'{{ text | string | replace("'", "'\\''") }}'{%- endmacro %}
{%- set setup %}
{{- word(sidle.program) }} --json --root {{ word(sidle.root) }} setup --repository {{ word(sidle.repository) }} --fingerprint {{ word(sidle.fingerprint) }} --package {{ word(sidle.package) }}
{%- if sidle.ca %} --ca {{ word(sidle.ca) }}{% endif %}
{%- if sidle.release %} --release {{ word(sidle.release) }}{% endif %}
{%- if sidle.adopt %} --adopt{% endif %}
{%- endset %}
{%- if sidle.source %}
sidle-program:
  file.managed:
    - name: {{ sidle.program | yaml_dquote }}
    - source: {{ sidle.source | yaml_dquote }}
    - mode: '0755'
    - require_in:
      - cmd: sidle-setup
{%- endif %}
{%- if sidle.unit %}
sidle-unit:
  file.managed:
    - name: {{ (sidle.root ~ '/etc/systemd/system/sidle@.service') | yaml_dquote }}
    - source: {{ sidle.unit | yaml_dquote }}
    - makedirs: True
    - mode: '0644'
    - require_in:
      - cmd: sidle-setup
{%- endif %}
{%- if sidle.settings %}
sidle-settings:
  file.managed:
    - name: {{ (sidle.root ~ '/etc/sidle/conf.d/50-salt.toml') | yaml_dquote }}
    - contents: {{ sidle.settings | yaml_dquote }}
    - makedirs: True
    - mode: '0644'
    - require_in:
      - cmd: sidle-setup
{%- endif %}

# `unless` holds where nothing is to be done: exit code 3 of the dry run.
sidle-setup:
  cmd.run:
    - name: {{ setup | yaml_dquote }}
    - unless: {{ (setup ~ ' --dry-run >/dev/null; test $? = 3') | yaml_dquote }}

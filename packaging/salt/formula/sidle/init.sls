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
    # `sidle upgrade sidle` has made it a link to the current release: Salt would write through it, into that release.
    - unless: {{ ('test -e ' ~ word(sidle.program) ~ ' && readlink ' ~ word(sidle.program) ~ ' | grep -q /sidle/current/bin/sidle$') | yaml_dquote }}
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
{%- if sidle.root in ['', '/'] and (sidle.source or sidle.unit or sidle.settings) %}
# As the packages of sidle and install.sh do: supervisors execute the new program and read the settings; the agents keep running.
sidle-supervisors:
  cmd.run:
    - name: >-
        systemctl daemon-reload;
        for unit in $(systemctl list-units --no-legend --no-pager 'sidle@*.service' | sed 's/^[^a-zA-Z]*//' | cut -d ' ' -f 1);
        do ! systemctl is-active --quiet "$unit" || systemctl kill -s HUP --kill-who=main "$unit"; done
    - onlyif: test -d /run/systemd/system
    - onchanges:
{%- if sidle.source %}
      - file: sidle-program
{%- endif %}
{%- if sidle.unit %}
      - file: sidle-unit
{%- endif %}
{%- if sidle.settings %}
      - file: sidle-settings
{%- endif %}
    - require_in:
      - cmd: sidle-setup
{%- endif %}

# `unless` holds where nothing is to be done: exit code 3 of the dry run.
sidle-setup:
  cmd.run:
    - name: {{ setup | yaml_dquote }}
    - unless: {{ (setup ~ ' --dry-run >/dev/null; test $? = 3') | yaml_dquote }}

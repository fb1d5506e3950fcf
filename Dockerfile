# The command line of Shardwright on Node, without a checkout: docker build -t shardwright . and
# docker run --rm -v "$PWD:/work" shardwright tune my_config.toml --devices 16xH100
FROM node:24-slim AS build
WORKDIR /source
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts
COPY . .
RUN npm run build && npm pack --ignore-scripts --pack-destination /tmp

FROM node:24-slim
COPY --from=build /tmp/shardwright-*.tgz /tmp/
RUN npm install --global --omit=dev /tmp/shardwright-*.tgz typescript@6.0.3 \
  && npm cache clean --force \
  && rm /tmp/shardwright-*.tgz
USER node
WORKDIR /work
ENTRYPOINT ["shardwright"]
CMD ["--help"]
